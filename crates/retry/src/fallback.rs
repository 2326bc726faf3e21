//! Another service for what one could not do.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use layer0::failure::{ErrorText, Failure};
use tower::{Service, ServiceExt};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// What a [`Fallback`] asks of a request.
pub trait FallbackRequest<E>: Clone {
    /// Records what became of the request, and returns it for the next service; `None` when no
    /// other may be asked, as when its budget is used up.
    fn next(&self, error: &E) -> BoxFuture<Option<Self>>;

    /// Hears what a service failed with after another one had failed with `earlier`. Where `error`
    /// says that the service was not even asked, `earlier` belongs into its chain.
    fn keep_earlier(&self, error: &mut E, earlier: &ErrorText) {
        let _ = (error, earlier);
    }
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
            let mut earlier = None;
            for service in others.iter() {
                match ask(service.clone(), &request, earlier.as_ref()).await {
                    Err(error) if error.elsewhere() => {
                        let next = request.next(&error).await;
                        let Some(next) = next else { return Err(error) };
                        tracing::warn!(code = error.code(), "asking another service");
                        earlier = Some(ErrorText::of(&error));
                        request = next;
                    }
                    result => return result,
                }
            }
            ask(last, &request, earlier.as_ref()).await
        })
    }
}

async fn ask<S, Req>(
    service: S,
    request: &Req,
    earlier: Option<&ErrorText>,
) -> Result<S::Response, S::Error>
where
    S: Service<Req>,
    Req: FallbackRequest<S::Error>,
{
    let mut result = service.oneshot(request.clone()).await;
    if let (Err(error), Some(earlier)) = (&mut result, earlier) {
        request.keep_earlier(error, earlier);
    }
    result
}

#[cfg(test)]
mod tests;
