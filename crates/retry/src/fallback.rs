//! Fallback to another service.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use layer0::failure::{Exhausted, Failure};
use tower::Service;

use crate::ask::ask;
use crate::request::RetryRequest;
use crate::service::RetryService;

/// A service that calls several services in turn, each as often as its policy allows.
///
/// The next one is called when the policy of the one before decides so: its circuit is open, its
/// quota is used up, the conversation is too long for it, or it failed in a temporary way until
/// retry gave up. A failure that any other service would repeat is returned at once. It belongs
/// outside retry.
///
/// ```
/// # use std::sync::Arc;
/// # use layer0::error::OrchError;
/// # use backstop_retry::{Fallback, RetryConfig, RetryPolicy};
/// # use tower::{Layer, service_fn};
/// # let [near, far] = [(); 2].map(|()| service_fn(async |(): ()| Ok::<_, OrchError>("done")));
/// let policy = RetryPolicy::new(RetryConfig::default(), Arc::new(backstop_clock::SystemClock));
/// let service = Fallback::new(policy.clone().layer().layer(near), [policy.layer().layer(far)]);
/// ```
#[derive(Debug, Clone)]
pub struct Fallback<S> {
    first: RetryService<S>,
    others: Arc<[RetryService<S>]>,
}

impl<S> Fallback<S> {
    /// Makes the service; `others` are called after `first`, in order.
    pub fn new(first: RetryService<S>, others: impl Into<Arc<[RetryService<S>]>>) -> Self {
        Self { first, others: others.into() }
    }
}

impl<S, Req> Service<Req> for Fallback<S>
where
    S: Service<Req> + Clone + Send + Sync + 'static,
    S::Error: Failure + From<Exhausted<S::Error>> + Send + Sync + 'static,
    S::Response: Send,
    S::Future: Send,
    Req: RetryRequest<S::Error> + Send + Sync + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // Each service is awaited when it is its turn.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let Self { first, others } = self.clone();
        Box::pin(async move {
            let endpoints = std::iter::once(&first).chain(&*others).map(RetryService::endpoint);
            let endpoints: Vec<_> = endpoints.collect();
            ask(&endpoints, request).await
        })
    }
}

#[cfg(test)]
mod tests;
