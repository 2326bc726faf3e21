//! Another service for what one could not do.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use layer0::code;
use layer0::failure::Failure;
use tower::{Service, ServiceExt};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// What a [`Fallback`] asks of a request.
pub trait FallbackRequest<E>: Clone {
    /// Records what became of the request, and returns it for the next service; `None` when nobody
    /// else may be asked, as when its budget is used up.
    fn next(&self, error: &E) -> BoxFuture<Option<Self>>;
}

/// Asks services in turn, each when the one before it could not answer: its circuit is open, its
/// quota is used up, the conversation is too long for it, or it failed in a passing way until retry
/// gave up. What another service would refuse just the same is returned at once. Stands outside retry.
#[derive(Debug, Clone)]
pub struct Fallback<S> {
    others: Arc<[S]>,
    last: S,
}

impl<S> Fallback<S> {
    /// Makes the service; those before `last` are asked first, in their order.
    pub fn new(before: impl Into<Arc<[S]>>, last: S) -> Self {
        Self { others: before.into(), last }
    }
}

impl<S, Req> Service<Req> for Fallback<S>
where
    S: Service<Req> + Clone + Send + Sync + 'static,
    S::Error: Failure + Send + Sync,
    S::Response: Send,
    S::Future: Send,
    Req: FallbackRequest<S::Error> + Send + Sync + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // Each service is waited for when it is its turn.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Req) -> Self::Future {
        let Self { others, last } = self.clone();
        Box::pin(async move {
            for service in others.iter() {
                match service.clone().oneshot(request.clone()).await {
                    Err(error) if is_for_another(&error) => {
                        let next = request.next(&error).await;
                        let Some(next) = next else { return Err(error) };
                        tracing::warn!(code = error.code(), "asking another service");
                        request = next;
                    }
                    result => return result,
                }
            }
            last.oneshot(request).await
        })
    }
}

/// May another service do better?
fn is_for_another(error: &impl Failure) -> bool {
    matches!(
        error.code(),
        code::PROVIDER_CIRCUIT_OPEN
            | code::PROVIDER_CONTEXT_OVERFLOW
            | code::PROVIDER_INVALID_RESPONSE
            | code::PROVIDER_QUOTA_EXHAUSTED
            | code::PROVIDER_RATE_LIMITED
            | code::PROVIDER_STREAM_INTERRUPTED
            | code::PROVIDER_STREAM_TRUNCATED
            | code::PROVIDER_TIMEOUT
            | code::PROVIDER_TRANSIENT
    )
}
