//! The limit of one attempt, as a typed error.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use backstop_clock::{BoxFuture, Clock};
use layer0::failure::TimedOut;
use tower::{Layer, Service};

/// A layer that wraps a service so that one call takes at most `after`. It belongs inside retry.
#[derive(Debug, Clone)]
pub struct AttemptTimeoutLayer {
    after: Duration,
    clock: Arc<dyn Clock>,
}

impl AttemptTimeoutLayer {
    /// Makes the layer.
    #[must_use]
    pub fn new(after: Duration, clock: Arc<dyn Clock>) -> Self {
        Self { after, clock }
    }
}

impl<S> Layer<S> for AttemptTimeoutLayer {
    type Service = AttemptTimeout<S>;

    fn layer(&self, inner: S) -> AttemptTimeout<S> {
        AttemptTimeout { inner, after: self.after, clock: Arc::clone(&self.clock) }
    }
}

/// The service that [`AttemptTimeoutLayer`] makes.
#[derive(Debug, Clone)]
pub struct AttemptTimeout<S> {
    inner: S,
    after: Duration,
    clock: Arc<dyn Clock>,
}

impl<S, Req> Service<Req> for AttemptTimeout<S>
where
    S: Service<Req>,
    S::Error: From<TimedOut>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = AttemptFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let attempt = Box::pin(self.inner.call(request));
        AttemptFuture { attempt, after: self.after, clock: Arc::clone(&self.clock), timer: None }
    }
}

/// The future of a call through [`AttemptTimeout`].
pub struct AttemptFuture<F> {
    attempt: Pin<Box<F>>,
    after: Duration,
    clock: Arc<dyn Clock>,
    /// Started when the attempt first waits: one that is ready at once needs no timer.
    timer: Option<BoxFuture>,
}

impl<F, T, E> Future for AttemptFuture<F>
where
    F: Future<Output = Result<T, E>>,
    E: From<TimedOut>,
{
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, E>> {
        let Self { attempt, after, clock, timer } = &mut *self;
        if let Poll::Ready(result) = attempt.as_mut().poll(cx) {
            return Poll::Ready(result);
        }
        let timer = timer.get_or_insert_with(|| clock.sleep(*after));
        timer.as_mut().poll(cx).map(|()| Err(TimedOut::new(*after).into()))
    }
}

impl<F> fmt::Debug for AttemptFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptFuture").field("after", &self.after).finish_non_exhaustive()
    }
}
