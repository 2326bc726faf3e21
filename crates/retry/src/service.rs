//! A service that is asked again, and others behind it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use layer0::failure::{ErrorText, Exhausted, Failure};
use tower::{Layer, Service};

use crate::ask::ask;
use crate::policy::RetryPolicy;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// What retry and fallback ask of a request; its clones are its attempts.
pub trait RetryRequest<E>: Clone {
    /// May the request be repeated even if an attempt acted?
    fn is_idempotent(&self) -> bool;

    /// Limits the attempts at all endpoints together further than the configuration does.
    fn max_attempts(&self) -> Option<u32> {
        None
    }

    /// Returns how long it may take until the next attempt begins; a longer wait is not begun.
    fn time_left(&self) -> Option<Duration> {
        None
    }

    /// Hears of a failed attempt that will be followed by another. The wait begins when the
    /// returned future is done. Where that fails there is no other attempt, and its failure is the
    /// request's.
    fn attempted(&self, attempt: FailedAttempt<'_, E>) -> Option<BoxFuture<Result<(), E>>> {
        let _ = attempt;
        None
    }

    /// Completes when no other attempt is wanted: a wait ends with it, and the last failure is the
    /// request's.
    fn given_up(&self) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }

    /// Receives what the endpoints failed with together, and once for each of the others what that one failed
    /// with: `earlier` belongs into the chain of `error`.
    fn keep_earlier(&self, error: &mut E, earlier: &ErrorText) {
        let _ = (error, earlier);
    }
}

/// An attempt that failed and will be followed by another.
#[derive(Debug)]
#[non_exhaustive]
pub struct FailedAttempt<'a, E> {
    /// Which attempt, those at other endpoints included: 1, 2, ….
    pub number: u32,
    /// What it failed with.
    pub error: &'a E,
    /// The wait that follows; none where the next endpoint is asked.
    pub delay: Duration,
}

impl RetryPolicy {
    /// Makes the layer.
    #[must_use]
    pub const fn layer(self) -> RetryLayer {
        RetryLayer::new(self)
    }
}

/// Wraps a service so that its failures are retried as a [`RetryPolicy`] decides.
#[derive(Debug, Clone)]
pub struct RetryLayer(RetryPolicy);

impl RetryLayer {
    pub(crate) const fn new(policy: RetryPolicy) -> Self {
        Self(policy)
    }
}

impl<S> Layer<S> for RetryLayer {
    type Service = Retry<S>;

    fn layer(&self, inner: S) -> Retry<S> {
        Retry { policy: self.0.clone(), inner }
    }
}

/// The service [`RetryLayer`] makes: one endpoint and its policy.
#[derive(Debug, Clone)]
pub struct Retry<S> {
    policy: RetryPolicy,
    inner: S,
}

impl<S, Req> Service<Req> for Retry<S>
where
    S: Service<Req> + Clone + Send + Sync + 'static,
    S::Error: Failure + From<Exhausted<S::Error>> + Send + Sync + 'static,
    S::Response: Send,
    S::Future: Send,
    Req: RetryRequest<S::Error> + Send + Sync + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // The service is waited for before each attempt.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let endpoint = self.clone();
        Box::pin(async move { ask(&[&endpoint], request).await })
    }
}

impl<S> Retry<S> {
    pub(crate) const fn policy(&self) -> &RetryPolicy {
        &self.policy
    }

    pub(crate) const fn inner(&self) -> &S {
        &self.inner
    }
}
