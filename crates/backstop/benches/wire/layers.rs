//! The layers around an attempt, and a service that answers at once.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use backstop::ProviderError;
use backstop::clock::{Clock, SystemClock};
use backstop::provider::ModelResponse;
use backstop::retry::{
    AttemptTimeoutLayer, Breaker, BreakerConfig, Fallback, RetryBudget, RetryConfig, RetryPolicy,
    RetryRequest,
};
use tower::{Service, ServiceBuilder, ServiceExt};

#[derive(Clone)]
pub(crate) struct Call;

impl RetryRequest<ProviderError> for Call {
    fn is_idempotent(&self) -> bool {
        true
    }
}

/// Answers at once.
#[derive(Clone)]
pub(crate) struct Bare(ModelResponse);

impl Service<Call> for Bare {
    type Response = ModelResponse;
    type Error = ProviderError;
    type Future = Ready<Result<ModelResponse, ProviderError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ProviderError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Call) -> Self::Future {
        ready(Ok(self.0.clone()))
    }
}

pub(crate) fn bare() -> Bare {
    Bare(ModelResponse::new(
        "x",
        Arc::default(),
        layer0::message::StopReason::End,
        Default::default(),
    ))
}

/// Puts the layers around a service that answers at once.
pub(crate) fn stacked()
-> impl Service<Call, Response = ModelResponse, Error = ProviderError> + Clone {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let retry = RetryPolicy::new(RetryConfig::default(), Arc::clone(&clock));
    let one = ServiceBuilder::new()
        .layer(retry.budget(RetryBudget::new(Arc::clone(&clock))).layer())
        .layer(Breaker::new(BreakerConfig::default(), Arc::clone(&clock)).layer())
        .layer(AttemptTimeoutLayer::new(Duration::from_secs(60), clock))
        .service(bare());
    Fallback::new(one, [])
}

pub(crate) async fn asked<S>(service: &S, times: u32)
where
    S: Service<Call, Response = ModelResponse, Error = ProviderError> + Clone,
{
    for _ in 0..times {
        service.clone().oneshot(Call).await.expect("nothing fails");
    }
}
