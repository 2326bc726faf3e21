//! The task of a dispatch: it waits for a place, tries, and sees to it that nothing is left behind.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::Clock;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use layer0::error::{OperatorError, OrchError};
use layer0::failure::{Effect, Facts, Failure};
use layer0::operator::{Answer, Context, Signal, Task};
use layer0::{Operator, Timestamp, code};
use thiserror::Error;
use tokio::sync::oneshot;
use tower::{Layer, ServiceExt};
use tracing::Instrument;
use tracing::instrument::WithSubscriber;

use crate::checked::Checked;
use crate::dispatch::{Dispatch, Run};
use crate::in_flight::Entered;
use crate::inner::Inner;

/// How long an operator that was told to end has to close its record.
const CLOSING: Duration = Duration::from_secs(5);

/// An operator that did not end in time, and was dropped.
///
/// Retry: never. Effect: unknown.
#[derive(Debug, Error)]
#[error("`{0}` did not end in time")]
struct OutOfTime(String);

impl Failure for OutOfTime {
    fn facts(&self) -> Facts {
        Facts::never(code::BUDGET_WALL_TIME, Effect::Unknown)
    }
}

/// Performs a dispatch in a task of its own.
///
/// # Cancel safety
///
/// If the future is dropped, the operator is told to end, and dropped where it does not in 5 s.
pub(crate) async fn perform(
    inner: &Inner,
    checked: Arc<Checked>,
    task: Task,
    context: Context,
    entered: Entered,
) -> Result<Answer, OrchError> {
    let places = (context.depth == 0).then(|| Arc::clone(&inner.places));
    let (policy, attempts) = inner.retry.of(&*checked.operator);
    let clock = Arc::clone(&inner.clock);
    let (mut done, result) = oneshot::channel();
    let work = async move {
        let _entered = entered;
        let ended = {
            let (deadline, signals) = (context.deadline, context.signals.clone());
            let operator = Arc::clone(&checked.operator);
            let dispatch = async {
                let _place = match places {
                    Some(places) => Some(places.acquire_owned().await),
                    None => None,
                };
                if context.deadline.is_some_and(|deadline| deadline <= clock.now()) {
                    return Err(OrchError::DeadlinePassed(format!("`{}`", operator.name())));
                }
                let operator = Arc::clone(&operator);
                let dispatch = Dispatch::new(operator, task, context, attempts);
                let answer = policy.layer().layer(Run).oneshot(dispatch).await;
                answer.map_err(|attempted| attempted.error)
            };
            let dispatch = AssertUnwindSafe(dispatch).catch_unwind();
            let end = async {
                let deadline = past(&clock, deadline, &*operator);
                match select(Box::pin(done.closed()), Box::pin(deadline)).await {
                    // It is not waited for any more.
                    Either::Left(_) => {
                        signals.push(Signal::cancel());
                        clock.sleep(CLOSING).await;
                    }
                    Either::Right(_) => {}
                }
            };
            match select(Box::pin(dispatch), Box::pin(end)).await {
                Either::Left((Ok(result), _)) => result,
                Either::Left((Err(panic), _)) => {
                    let why = format!("`{}`: {}", operator.name(), panic_text(&*panic));
                    Err(OrchError::Panicked(why))
                }
                Either::Right(_) => {
                    let late = OutOfTime(operator.name().to_owned());
                    Err(OperatorError::failed(late).into())
                }
            }
        };
        let ended = ended.and_then(|answer| checked.check_output(answer));
        // Whoever waited for it may be gone.
        drop(done.send(ended));
    };
    let work = work.instrument(tracing::Span::current()).with_current_subscriber();
    tokio::spawn(inner.clock.track(Box::pin(work)));
    result.await.unwrap_or_else(|_| Err(OrchError::panicked("its task was lost")))
}

/// Waits until an operator is out of time. One that keeps a record ends by itself, and has some time to
/// write that down.
async fn past(clock: &Arc<dyn Clock>, deadline: Option<Timestamp>, operator: &dyn Operator) {
    let Some(deadline) = deadline else { return std::future::pending().await };
    let closing = if operator.can_go_on() { CLOSING } else { Duration::ZERO };
    clock.sleep(deadline.since(clock.now()).saturating_add(closing)).await;
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a value that is no text".to_owned())
}
