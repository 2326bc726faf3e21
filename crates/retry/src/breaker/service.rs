//! The service of a circuit breaker.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use layer0::failure::{CircuitOpen, Failure};
use tower::{Layer, Service};

use super::{Breaker, Permit};

/// A layer that wraps a service with a [`Breaker`]. It belongs inside retry, around one attempt.
#[derive(Debug, Clone)]
pub struct BreakerLayer(Breaker);

impl Breaker {
    /// Makes the layer.
    #[must_use]
    pub fn layer(self) -> BreakerLayer {
        BreakerLayer(self)
    }
}

impl<S> Layer<S> for BreakerLayer {
    type Service = CircuitBreaker<S>;

    fn layer(&self, inner: S) -> CircuitBreaker<S> {
        CircuitBreaker { inner, breaker: self.0.clone() }
    }
}

/// The service that [`BreakerLayer`] makes.
///
/// A refused call takes no permit of the inner service. A call that waits for a permit checks the
/// breaker again once it has one: the circuit may have opened in between, and a waiting call is not
/// a probe yet.
#[derive(Debug, Clone)]
pub struct CircuitBreaker<S> {
    inner: S,
    breaker: Breaker,
}

impl<S, Req> Service<Req> for CircuitBreaker<S>
where
    S: Service<Req> + Clone,
    S::Error: Failure + From<CircuitOpen> + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BreakerFuture<S, Req>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // The inner service is awaited in the call, after the first check of the circuit.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        BreakerFuture(match self.breaker.check() {
            Ok(()) => GuardedCall::Waiting {
                service: self.inner.clone(),
                request: Some(request),
                breaker: self.breaker.clone(),
            },
            Err(open) => GuardedCall::Refused(Some(open)),
        })
    }
}

/// The future of a [`CircuitBreaker`].
pub struct BreakerFuture<S: Service<Req>, Req>(GuardedCall<S, Req>);

enum GuardedCall<S: Service<Req>, Req> {
    /// Waiting until the inner service is ready.
    Waiting {
        service: S,
        request: Option<Req>,
        breaker: Breaker,
    },
    Made(Pin<Box<S::Future>>, Option<Permit>),
    Refused(Option<CircuitOpen>),
}

// The service and the request are never pinned.
impl<S: Service<Req>, Req> Unpin for BreakerFuture<S, Req> {}

impl<S, Req> Future for BreakerFuture<S, Req>
where
    S: Service<Req>,
    S::Error: Failure + From<CircuitOpen> + 'static,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &mut self.0 {
                GuardedCall::Refused(open) => {
                    return match open.take() {
                        Some(open) => Poll::Ready(Err(open.into())),
                        None => Poll::Pending,
                    };
                }
                GuardedCall::Waiting { service, request, breaker } => {
                    std::task::ready!(service.poll_ready(cx))?;
                    let Some(request) = request.take() else { return Poll::Pending };
                    self.0 = match breaker.admit() {
                        Ok(permit) => {
                            GuardedCall::Made(Box::pin(service.call(request)), Some(permit))
                        }
                        // The permit of the inner service is dropped with it.
                        Err(open) => GuardedCall::Refused(Some(open)),
                    };
                }
                GuardedCall::Made(attempt, permit) => {
                    let result = std::task::ready!(attempt.as_mut().poll(cx));
                    if let Some(permit) = permit.take() {
                        permit.record(&result);
                    }
                    return Poll::Ready(result);
                }
            }
        }
    }
}

impl<S: Service<Req>, Req> fmt::Debug for BreakerFuture<S, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let admitted = matches!(self.0, GuardedCall::Made(..));
        f.debug_struct("BreakerFuture").field("admitted", &admitted).finish_non_exhaustive()
    }
}
