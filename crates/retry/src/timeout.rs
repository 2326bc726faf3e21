//! The limit of one attempt, as a typed error.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use backstop_clock::Clock;
use futures_util::future::{Either, select};
use layer0::failure::TimedOut;
use tower::{Layer, Service};

/// Wraps a service so that one call to it takes at most `after`. Stands inside retry.
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

/// The service [`AttemptTimeoutLayer`] makes.
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
    S::Future: Send + Unpin + 'static,
    S::Response: Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let (attempt, after) = (self.inner.call(request), self.after);
        let clock = Arc::clone(&self.clock);
        Box::pin(async move {
            // Begins when the attempt first waits: one that is ready at once needs no timer.
            let limit = pin!(async { clock.sleep(after).await });
            match select(attempt, limit).await {
                Either::Left((result, _)) => result,
                Either::Right(((), _)) => Err(TimedOut { after }.into()),
            }
        })
    }
}
