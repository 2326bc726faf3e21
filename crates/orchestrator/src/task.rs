//! The task of a dispatch: waits for a permit, runs the operator, and cancels it once nothing waits for the dispatch
//! any more.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, Limit};
use backstop_event_log::Lease;
use backstop_retry::RetryPolicy;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use layer0::error::{OperatorError, OrchError};
use layer0::failure::{Effect, Facts, Failure};
use layer0::operator::{Answer, Caller, Context, Signal, Task, Waiting};
use layer0::usage::{Allowance, Usage};
use layer0::{code, text};
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tower::{Layer, ServiceExt};
use tracing::Instrument;
use tracing::instrument::WithSubscriber;

use crate::books::callers::{LimitPause, OwnCaller};
use crate::books::{Books, Leaving, least};
use crate::checked::CheckedOperator;
use crate::dispatch::{DispatchAttempt, OperatorService};
use crate::in_flight::Entered;
use crate::inner::OrchestratorInner;
use crate::parked::Parked;

/// Time for which a cancelled operator may close its record.
const CLOSING: Duration = Duration::from_secs(5);

/// Returns how long a workflow at this depth waits for its steps to close their records: the deeper, the shorter, so
/// that each record is closed before its caller stops waiting.
pub(crate) fn closing_time(depth: u32) -> Duration {
    let margin = CLOSING_MARGIN.saturating_mul(depth.saturating_add(1));
    CLOSING.saturating_sub(margin).max(CLOSING_MARGIN)
}

/// Difference between the waits of two adjacent levels.
const CLOSING_MARGIN: Duration = Duration::from_millis(250);

/// Interval at which a run that another process has resumed is checked for its end.
const ELSEWHERE: Duration = Duration::from_secs(1);

/// Failure of an operator that did not end in time, and was dropped.
///
/// Retry: never. Effect: unknown.
#[derive(Debug, Error)]
#[error("`{0}` did not end in time")]
struct OperatorTimeout(String);

impl Failure for OperatorTimeout {
    fn facts(&self) -> Facts {
        Facts::never(code::BUDGET_WALL_TIME, Effect::Unknown)
    }
}

/// A dispatch that is ready to run.
pub(crate) struct Performance {
    pub(crate) checked: Arc<CheckedOperator>,
    pub(crate) task: Task,
    pub(crate) context: Context,
    /// Guard that keeps the dispatch known while it is in flight.
    pub(crate) entered: Entered,
}

/// A dispatch whose task was spawned.
pub(crate) struct SpawnedDispatch(oneshot::Receiver<Result<Answer, OrchError>>);

impl SpawnedDispatch {
    /// Waits for the end of the dispatch.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the operator is cancelled, and dropped if it does not end in 5 s.
    pub(crate) async fn join(self) -> Result<Answer, OrchError> {
        self.0.await.unwrap_or_else(|_| Err(OrchError::from_panic("its task was lost")))
    }
}

/// Runs a dispatch in a task of its own.
pub(crate) fn spawn(inner: &OrchestratorInner, performance: Performance) -> SpawnedDispatch {
    let places = (performance.context.depth == 0).then(|| Arc::clone(&inner.places));
    let (policy, attempts) = inner.retry.policy_for(&*performance.checked.operator);
    let (clock, log) = (Arc::clone(&inner.clock), inner.log.clone());
    let leaves_parked = inner.leaves_parked;
    let (mut done, result) = oneshot::channel();
    let work = async move {
        let Performance { checked, task, mut context, entered } = performance;
        let (mut was_parked, mut is_to_end) = (false, false);
        // time of day: the deadline was just set, and the rest is measured.
        let time = context.deadline.map(|deadline| deadline.since(clock.now()));
        let limit = Arc::new(Limit::new(Arc::clone(&clock), time));
        let ended = loop {
            let place = match &places {
                // The run only closes its record, which needs no permit.
                _ if is_to_end => Ok(None),
                Some(places) => place(Arc::clone(places), &limit, &mut done).await,
                None => Ok(None),
            };
            // A run that was parked has begun: its record has its time limit.
            let place = place.and_then(|place| match limit.time_left() {
                Some(Duration::ZERO) if !was_parked => {
                    let late = format!("`{}`", checked.operator.name());
                    Err(OrchError::DeadlinePassed(late))
                }
                _ => Ok(place),
            });
            let ended = match place {
                Ok(_place) => {
                    limit.go_on();
                    if was_parked {
                        // time of day: the deadline is shown to the operator; the limit itself is measured.
                        context.deadline = limit.time_left().map(|left| clock.now().after(left));
                    }
                    let lease = log.as_ref().and_then(|log| log.lease());
                    let at_work = PermittedDispatch::new(
                        Arc::clone(&checked),
                        task.clone(),
                        context.clone(),
                        Arc::clone(&limit),
                        Arc::clone(&clock),
                    );
                    at_work.perform(policy.clone(), attempts, lease, &mut done).await
                }
                Err(error) => Err(error),
            };
            // The time without a process counts for no deadline, nor does the wait for a permit after it.
            limit.pause();
            // A parked run returns its permit.
            match Parked::from_result(&ended, &context).filter(|_| !leaves_parked) {
                // A parked run is cancelled only once.
                Some(_) if is_to_end => break ended,
                Some(parked) => {
                    parked.wait(&mut context, &*clock, log.as_ref(), done.closed()).await;
                    if context.signals.is_detached() {
                        break ended;
                    }
                    was_parked = true;
                    is_to_end = context.signals.contains(Signal::CANCEL);
                }
                None if was_parked && is_elsewhere(&ended) => {
                    let waited = Box::pin(clock.sleep(ELSEWHERE));
                    if let Either::Right(_) = select(waited, Box::pin(done.closed())).await {
                        break ended;
                    }
                }
                None => break ended,
            }
        };
        // The dispatch leaves the list before its caller learns of the end.
        drop(entered);
        drop(done.send(ended));
    };
    let work = work.instrument(tracing::Span::current()).with_current_subscriber();
    tokio::spawn(inner.clock.track(Box::pin(work)));
    SpawnedDispatch(result)
}

/// Returns whether another process has resumed the run.
fn is_elsewhere(ended: &Result<Answer, OrchError>) -> bool {
    ended.as_ref().is_err_and(|error| error.code() == code::RUN_OPEN)
}

type Done = oneshot::Sender<Result<Answer, OrchError>>;

/// Waits for a permit until the time limit ends.
async fn place(
    places: Arc<Semaphore>,
    limit: &Limit,
    done: &mut Done,
) -> Result<Option<OwnedSemaphorePermit>, OrchError> {
    if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
        return Ok(Some(place));
    }
    let gives_up = select(Box::pin(limit.wait_for_end()), Box::pin(done.closed()));
    match select(Box::pin(places.acquire_owned()), gives_up).await {
        Either::Left((place, _)) => Ok(place.ok()),
        Either::Right((Either::Left(_), _)) => Ok(None),
        // Nothing waits for the dispatch any more.
        Either::Right((Either::Right(_), _)) => {
            Err(OrchError::Shutdown("it was given up".to_owned()))
        }
    }
}

/// A dispatch with its permit.
struct PermittedDispatch {
    checked: Arc<CheckedOperator>,
    task: Task,
    context: Context,
    clock: Arc<dyn Clock>,
    limit: Arc<Limit>,
    /// Books of an operator without a record.
    books: Option<Arc<Books>>,
}

impl PermittedDispatch {
    fn new(
        checked: Arc<CheckedOperator>,
        task: Task,
        mut context: Context,
        limit: Arc<Limit>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let above = context.caller.take();
        // That guard belongs to the caller, if there is one.
        context.own_work = None;
        let books = match checked.operator.can_go_on() {
            true => {
                let limit = Arc::clone(&limit);
                context.caller = above.map(|above| Arc::new(Timed { above, limit }) as _);
                None
            }
            false => {
                let signals = context.signals.clone();
                let allowance = least(context.allowance, task.allowance);
                let limit = Arc::clone(&limit);
                let has_caller = above.is_some();
                let leaving = if task.idempotent { Leaving::WithCaller } else { Leaving::Never };
                let books = Books::new(above, allowance, limit, signals, leaving);
                context.caller = has_caller.then(|| Arc::new(OwnCaller(Arc::clone(&books))) as _);
                context.own_work = Some(Arc::clone(&books) as _);
                Some(books)
            }
        };
        Self { checked, task, context, clock, limit, books }
    }

    async fn perform(
        self,
        policy: RetryPolicy,
        attempts: u32,
        lease: Option<Arc<dyn Lease>>,
        done: &mut Done,
    ) -> Result<Answer, OrchError> {
        let Self { checked, task, context, clock, limit, books } = self;
        let operator = Arc::clone(&checked.operator);
        let signals = context.signals.clone();
        let expected = task.output_schema.clone();
        let ended = {
            let dispatch = DispatchAttempt::new(Arc::clone(&operator), task, context, attempts)
                .within(Arc::clone(&limit), books.clone())
                .under(lease);
            let dispatch = policy.layer().layer(OperatorService).oneshot(dispatch);
            let dispatch = AssertUnwindSafe(dispatch).catch_unwind();
            let given_up = async {
                done.closed().await;
                if signals.is_detached() {
                    if let Some(books) = &books {
                        books.detach();
                    }
                    return;
                }
                signals.push(Signal::cancel());
                clock.sleep(CLOSING).await;
            };
            // An operator with a record keeps its own time limit, and extends it by its waits for people.
            let bounded = async {
                let Some(books) = &books else { return std::future::pending().await };
                match select(
                    Box::pin(limit.wait_for_end()),
                    Box::pin(books.follow(|_| std::future::ready(()))),
                )
                .await
                {
                    Either::Left(_) => ForcedEnd::Late,
                    Either::Right(_) => ForcedEnd::Left(books.suspended_answer()),
                }
            };
            let end = select(Box::pin(given_up), Box::pin(bounded));
            match select(Box::pin(dispatch), end).await {
                Either::Left((Ok(result), _)) => result.map_err(|attempted| attempted.error),
                Either::Left((Err(panic), _)) => {
                    let why = format!("`{}`: {}", operator.name(), text::panic_message(panic));
                    Err(OrchError::Panicked(why))
                }
                Either::Right((Either::Right((ForcedEnd::Left(answer), _)), _)) => Ok(answer),
                Either::Right(_) => {
                    let late = OperatorTimeout(operator.name().to_owned());
                    Err(OperatorError::from_failure(late).into())
                }
            }
        };
        let mut answer = ended?;
        if let Some(books) = &books {
            answer.usage = books.total_usage(&answer.usage);
        }
        checked.check_output(answer, expected.as_ref())
    }
}

/// An end that does not come from an operator without a record itself.
enum ForcedEnd {
    /// Its child runs were suspended, to be resumed with it.
    Left(Answer),
    Late,
}

/// The caller of an operator with a record. While the operator waits, no time passes for its retries.
struct Timed {
    above: Arc<dyn Caller>,
    limit: Arc<Limit>,
}

#[async_trait]
impl Caller for Timed {
    fn report_usage(&self, usage: Usage) {
        self.above.report_usage(usage);
    }

    async fn wait(&self, waiting: Waiting) {
        let _pause = LimitPause::new(&self.limit);
        self.above.wait(waiting).await;
    }

    async fn more(&self, given: u32) -> Option<Allowance> {
        self.above.more(given).await
    }

    async fn retry(&self, attempt: u32) -> Result<(), OrchError> {
        self.above.retry(attempt).await
    }

    async fn until_may_act(&self) {
        self.above.until_may_act().await;
    }

    async fn must_stop(&self) {
        self.above.must_stop().await;
    }
}
