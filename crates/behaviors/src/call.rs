//! One delivery through the retry layer.

use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use backstop_clock::Clock;
use backstop_event_log::{ActionGuard, Lease, begin_work, while_it_lasts};
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

/// The result of a delivery.
pub(crate) struct CallEnd {
    pub(crate) attempts: u32,
    pub(crate) result: Result<(), BehaviorError>,
    /// Guard that keeps a successful delivery in progress until its end is recorded.
    pub(crate) at_work: Option<ActionGuard>,
}

/// A request to the retry layer: one delivery, whose clones are its attempts.
#[derive(Clone)]
struct DeliveryRequest {
    behavior: Arc<dyn Behavior>,
    delivery: Arc<Delivery>,
    context: BehaviorContext,
    clock: Arc<dyn Clock>,
    attempts: Arc<AtomicU32>,
    lease: Option<Arc<dyn Lease>>,
    made: Arc<Mutex<Option<ActionGuard>>>,
}

/// Delivers an event, with the retries that the failure allows. Once this host's lease of the subscription has ended,
/// the call makes no attempt and does not return: another host delivers the event.
pub(crate) async fn call(
    behavior: Arc<dyn Behavior>,
    delivery: Delivery,
    context: BehaviorContext,
    clock: Arc<dyn Clock>,
    lease: Option<Arc<dyn Lease>>,
) -> CallEnd {
    let attempts = Arc::new(AtomicU32::new(1));
    // Each attempt has its own limit, which may be longer than the usual limit of all attempts together.
    let config = RetryConfig::new().attempts(behavior.attempts().max(1)).deadline(Duration::MAX);
    let policy = RetryPolicy::new(config, Arc::clone(&clock));
    let delivery = Arc::new(delivery);
    let made = Arc::<Mutex<_>>::default();
    let call = DeliveryRequest {
        behavior,
        delivery,
        context,
        clock,
        attempts: Arc::clone(&attempts),
        lease,
        made: Arc::clone(&made),
    };
    let result = policy.layer().layer(DeliveryService).oneshot(call).await;
    let attempts = attempts.load(Ordering::Relaxed);
    let at_work = made.lock().unwrap_or_else(PoisonError::into_inner).take();
    CallEnd { attempts, result: result.map_err(|AttemptError(error)| error), at_work }
}

/// Deliveries are at least once: an attempt may be repeated, and the delivery's id identifies an effect that was
/// already made.
impl RetryRequest<AttemptError> for DeliveryRequest {
    fn is_idempotent(&self) -> bool {
        true
    }

    fn record_failed_attempt(
        &self,
        attempt: FailedAttempt<'_, AttemptError>,
    ) -> Option<BoxFuture<Result<(), AttemptError>>> {
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

/// The failure of an attempt, as the retry layer classifies it.
///
/// Retry: as the behaviour's error says. Effect: as it says.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct AttemptError(BehaviorError);

impl Failure for AttemptError {
    fn facts(&self) -> Facts {
        self.0.facts()
    }
}

impl From<Exhausted<AttemptError>> for AttemptError {
    fn from(exhausted: Exhausted<AttemptError>) -> Self {
        exhausted.last
    }
}

/// The service that makes one attempt.
#[derive(Clone)]
struct DeliveryService;

impl Service<DeliveryRequest> for DeliveryService {
    type Response = ();
    type Error = AttemptError;
    type Future = BoxFuture<Result<(), AttemptError>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), AttemptError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: DeliveryRequest) -> Self::Future {
        Box::pin(async move {
            let Some(lease) = call.lease.clone() else { return attempt(call).await };
            let at_work = begin_work(&*lease).await;
            let made = Arc::clone(&call.made);
            let Some(result) = while_it_lasts(&*lease, attempt(call)).await else {
                return pending().await;
            };
            if result.is_ok() {
                *made.lock().unwrap_or_else(PoisonError::into_inner) = at_work;
            }
            result
        })
    }
}

async fn attempt(call: DeliveryRequest) -> Result<(), AttemptError> {
    let DeliveryRequest { behavior, delivery, context, clock, .. } = call;
    let limit = behavior.timeout();
    let reaction = AssertUnwindSafe(behavior.on(&delivery, &context)).catch_unwind();
    match select(Box::pin(reaction), clock.sleep(limit)).await {
        Either::Left((Ok(result), _)) => result.map_err(AttemptError),
        Either::Left((Err(panic), _)) => {
            Err(AttemptError(BehaviorError::from_panic(text::panic_message(panic))))
        }
        Either::Right(_) => Err(AttemptError(BehaviorError::from_timeout(limit))),
    }
}
