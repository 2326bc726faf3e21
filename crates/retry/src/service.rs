//! A service that is retried.

use std::pin::Pin;
use std::task::{Context, Poll};

use layer0::failure::{Exhausted, Failure};
use tower::{Layer, Service};

use crate::ask::{RetryEndpoint, ask};
use crate::policy::RetryPolicy;
use crate::request::RetryRequest;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

impl RetryPolicy {
    /// Makes the layer.
    #[must_use]
    pub const fn layer(self) -> RetryLayer {
        RetryLayer::new(self)
    }
}

/// A layer that wraps a service so that a [`RetryPolicy`] decides on retries of its failures.
#[derive(Debug, Clone)]
pub struct RetryLayer(RetryPolicy);

impl RetryLayer {
    pub(crate) const fn new(policy: RetryPolicy) -> Self {
        Self(policy)
    }
}

impl<S> Layer<S> for RetryLayer {
    type Service = RetryService<S>;

    fn layer(&self, inner: S) -> RetryService<S> {
        RetryService { policy: self.0.clone(), inner }
    }
}

/// The service that [`RetryLayer`] makes: one endpoint and its policy.
#[derive(Debug, Clone)]
pub struct RetryService<S> {
    policy: RetryPolicy,
    inner: S,
}

impl<S, Req> Service<Req> for RetryService<S>
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
        // The service is awaited before each attempt.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let endpoint = self.clone();
        Box::pin(async move { ask(&[endpoint.endpoint()], request).await })
    }
}

impl<S> RetryService<S> {
    pub(crate) const fn endpoint(&self) -> RetryEndpoint<'_, S> {
        RetryEndpoint { policy: &self.policy, inner: &self.inner }
    }
}
