//! One delivery on its way through the retry layer.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context as TaskContext, Poll};

use backstop_clock::Clock;
use backstop_retry::{FailedAttempt, RetryConfig, RetryPolicy, RetryRequest};
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use layer0::failure::{Exhausted, Facts, Failure};
use layer0::text;
use tower::{Layer, Service, ServiceExt};

use crate::behavior::Behavior;
use crate::context::BehaviorContext;
use crate::delivery::Delivery;
use crate::error::BehaviorError;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// How a delivery ended.
pub(crate) struct CallEnd {
    pub(crate) attempts: u32,
    pub(crate) result: Result<(), BehaviorError>,
}

/// A delivery; clones are its attempts.
#[derive(Clone)]
struct Call {
    behavior: Arc<dyn Behavior>,
    delivery: Arc<Delivery>,
    context: BehaviorContext,
    clock: Arc<dyn Clock>,
    attempts: Arc<AtomicU32>,
}

/// Delivers an event, and tries again as the failure says.
pub(crate) async fn call(
    behavior: Arc<dyn Behavior>,
    delivery: Delivery,
    context: BehaviorContext,
    clock: Arc<dyn Clock>,
) -> CallEnd {
    let attempts = Arc::new(AtomicU32::new(1));
    let config = RetryConfig::new().attempts(behavior.attempts().max(1));
    let policy = RetryPolicy::new(config, Arc::clone(&clock));
    let delivery = Arc::new(delivery);
    let call = Call { behavior, delivery, context, clock, attempts: Arc::clone(&attempts) };
    let result = policy.layer().layer(Attempt).oneshot(call).await;
    let attempts = attempts.load(Ordering::Relaxed);
    CallEnd { attempts, result: result.map_err(|Attempted(error)| error) }
}

/// Effects are made at least once: the delivery's id tells one that was made before.
impl RetryRequest<Attempted> for Call {
    fn is_idempotent(&self) -> bool {
        true
    }

    fn attempted(
        &self,
        attempt: FailedAttempt<'_, Attempted>,
    ) -> Option<BoxFuture<Result<(), Attempted>>> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        tracing::info!(
            behavior = self.behavior.name(),
            delivery = self.delivery.id,
            attempt = attempt.number,
            code = attempt.error.code(),
            delay = ?attempt.delay,
            "a delivery is tried again"
        );
        None
    }
}

/// The failure of an attempt, as the retry layer judges it.
///
/// Retry: as the behaviour's error says. Effect: as it says.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Attempted(BehaviorError);

impl Failure for Attempted {
    fn facts(&self) -> Facts {
        self.0.facts()
    }
}

impl From<Exhausted<Attempted>> for Attempted {
    fn from(exhausted: Exhausted<Attempted>) -> Self {
        exhausted.last
    }
}

/// Makes one attempt.
#[derive(Clone)]
struct Attempt;

impl Service<Call> for Attempt {
    type Response = ();
    type Error = Attempted;
    type Future = BoxFuture<Result<(), Attempted>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Attempted>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        Box::pin(async move {
            let Call { behavior, delivery, context, clock, .. } = call;
            let limit = behavior.timeout();
            let reaction = AssertUnwindSafe(behavior.on(&delivery, &context)).catch_unwind();
            match select(Box::pin(reaction), clock.sleep(limit)).await {
                Either::Left((Ok(result), _)) => result.map_err(Attempted),
                Either::Left((Err(panic), _)) => {
                    Err(Attempted(BehaviorError::panicked(text::panicked(panic))))
                }
                Either::Right(_) => Err(Attempted(BehaviorError::timed_out(limit))),
            }
        })
    }
}
