//! One dispatch in the retry layer.

use std::borrow::Cow;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use backstop_clock::Limit;
use backstop_event_log::{Lease, LogError, begin_work};
use backstop_retry::{FailedAttempt, RetryRequest};
use futures_util::future::select;
use layer0::Operator;
use layer0::error::{OperatorError, OrchError};
use layer0::failure::{Effect, Exhausted, Facts, Failure, Retry};
use layer0::id::RunId;
use layer0::operator::{Answer, Caller, Context, Signal, Task};
use tower::Service;

use crate::between::Between;
use crate::books::Books;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Shortest wait before an operator continues after its own layers gave up.
const AFTER_GIVING_UP: Duration = Duration::from_secs(30);

/// A dispatch; clones are its attempts.
#[derive(Clone)]
pub(crate) struct DispatchAttempt {
    pub(crate) operator: Arc<dyn Operator>,
    pub(crate) task: Task,
    pub(crate) context: Context,
    /// Number of attempts, including those of earlier processes.
    attempts: Arc<AtomicU32>,
    max_attempts: u32,
    /// Time limit of all attempts together.
    limit: Option<Arc<Limit>>,
    /// Books of an operator without a record.
    books: Option<Arc<Books>>,
    /// Lease of this process.
    lease: Option<Arc<dyn Lease>>,
}

impl DispatchAttempt {
    pub(crate) fn new(
        operator: Arc<dyn Operator>,
        task: Task,
        context: Context,
        max_attempts: u32,
    ) -> Self {
        let attempts = Arc::new(AtomicU32::new(context.attempt));
        Self {
            operator,
            task,
            context,
            attempts,
            max_attempts,
            limit: None,
            books: None,
            lease: None,
        }
    }

    /// Sets the time limit and the books that all attempts share.
    pub(crate) fn within(self, limit: Arc<Limit>, books: Option<Arc<Books>>) -> Self {
        Self { limit: Some(limit), books, ..self }
    }

    /// Limits an operator without a record to the time in which this process may act.
    pub(crate) fn under(self, lease: Option<Arc<dyn Lease>>) -> Self {
        Self { lease: lease.filter(|_| !self.operator.can_go_on()), ..self }
    }
}

impl RetryRequest<DispatchFailure> for DispatchAttempt {
    fn is_idempotent(&self) -> bool {
        self.task.idempotent
    }

    fn max_attempts(&self) -> Option<u32> {
        Some(self.max_attempts.saturating_sub(self.context.attempt.saturating_sub(1)))
    }

    fn time_left(&self) -> Option<Duration> {
        self.limit.as_ref()?.time_left()
    }

    /// Records another attempt before it begins; if that fails, there is no attempt.
    fn record_failed_attempt(
        &self,
        attempt: FailedAttempt<'_, DispatchFailure>,
    ) -> Option<BoxFuture<Result<(), DispatchFailure>>> {
        let next = self.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        tracing::info!(
            operator = self.operator.name(),
            attempt = attempt.number,
            code = attempt.error.code(),
            delay = ?attempt.delay,
            "dispatch is tried again"
        );
        if let Some(books) = &self.books {
            books.attempt_again();
        }
        let caller = self.context.caller.clone()?;
        let goes_on = self.operator.can_go_on();
        Some(Box::pin(async move {
            caller.retry(next).await.map_err(|error| DispatchFailure { error, goes_on })
        }))
    }

    fn given_up(&self) -> BoxFuture<()> {
        let signals = self.context.signals.clone();
        Box::pin(poll_fn(move |context| signals.poll_has(Signal::CANCEL, context)))
    }
}

/// The failure of an attempt, for the retry layer.
///
/// Retry: as the operator's error says. Effect: as the operator's error says.
#[derive(Debug)]
pub(crate) struct DispatchFailure {
    pub(crate) error: OrchError,
    /// Whether the operator can continue after the failure.
    goes_on: bool,
}

impl fmt::Display for DispatchFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for DispatchFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl DispatchFailure {
    /// Returns whether continuing can help. After a layer below has given up, at least `AFTER_GIVING_UP` passes
    /// first.
    fn going_on(&self) -> Retry {
        let facts = self.error.facts();
        match (facts.retry, facts.later) {
            (Retry::Never, Retry::Never) => Retry::Never,
            (Retry::Never, Retry::After(hint)) => Retry::After(hint.max(AFTER_GIVING_UP)),
            (Retry::Never, Retry::Backoff) => Retry::After(AFTER_GIVING_UP),
            (retry, _) => retry,
        }
    }
}

/// An operator that continues repeats nothing: its retry answer is that of the failure itself, even if a layer below
/// gave up, and its effect is none.
impl Failure for DispatchFailure {
    fn facts(&self) -> Facts {
        match self.goes_on {
            false => self.error.facts(),
            true => self.error.facts().with_retry(self.going_on()).with_effect(Effect::None),
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        self.error.hint()
    }
}

impl From<Exhausted<DispatchFailure>> for DispatchFailure {
    fn from(Exhausted { attempts, elapsed, last, .. }: Exhausted<DispatchFailure>) -> Self {
        let Self { error, goes_on } = last;
        Self { error: Exhausted::new(attempts, elapsed, error).into(), goes_on }
    }
}

/// The right of an operator without a record to act, which depends on this process and on its caller.
struct Right<'a> {
    lease: Option<&'a dyn Lease>,
    caller: Option<&'a dyn Caller>,
}

impl Right<'_> {
    /// Runs an operator until the right is lost; then its child runs are detached before the operator is dropped.
    async fn run(
        &self,
        (run, books): (Option<&RunId>, Option<&Books>),
        work: impl Future<Output = Result<Answer, OperatorError>> + Send,
    ) -> Result<Answer, OperatorError> {
        let mut work = pin!(work);
        if let Some(caller) = self.caller {
            caller.until_may_act().await;
        }
        let _at_work = match self.lease {
            Some(lease) => begin_work(lease).await,
            None => None,
        };
        let mut lost = pin!(self.until_lost());
        let ended = poll_fn(|cx| match lost.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => work.as_mut().poll(cx).map(Some),
        });
        ended.await.unwrap_or_else(|| {
            if let Some(books) = books {
                books.detach();
            }
            let run = run.cloned().unwrap_or_else(|| RunId::new(""));
            Err(OperatorError::from_failure(LogError::LeaseEnded(run)))
        })
    }

    /// Waits until the right is lost.
    async fn until_lost(&self) {
        let lease = async {
            match self.lease {
                Some(lease) => lease.must_stop().await,
                None => std::future::pending().await,
            }
        };
        let caller = async {
            match self.caller {
                Some(caller) => caller.must_stop().await,
                None => std::future::pending().await,
            }
        };
        select(pin!(lease), pin!(caller)).await;
    }
}

/// Service that runs the operator of a dispatch.
#[derive(Clone)]
pub(crate) struct OperatorService;

impl Service<DispatchAttempt> for OperatorService {
    type Response = Answer;
    type Error = DispatchFailure;
    type Future = BoxFuture<Result<Answer, DispatchFailure>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), DispatchFailure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, dispatch: DispatchAttempt) -> Self::Future {
        Box::pin(async move {
            let DispatchAttempt { operator, task, mut context, attempts, books, lease, .. } =
                dispatch;
            let attempt = attempts.load(Ordering::Relaxed);
            context.goes_on |= attempt > context.attempt;
            context.attempt = attempt;
            if let (Some(books), Some(run)) = (&books, &context.run)
                && let Some(orchestrator) = context.orchestrator.take()
            {
                let books = Arc::clone(books);
                let between = Between::new(orchestrator, books, run.clone(), context.goes_on);
                context.orchestrator = Some(Arc::new(between));
            }
            let goes_on = operator.can_go_on();
            let work = operator.run(task, &context);
            let caller = context.caller.as_deref().filter(|_| !goes_on);
            let right = Right { lease: lease.as_deref(), caller };
            let result = right.run((context.run.as_ref(), books.as_deref()), work).await;
            result.map_err(|error| DispatchFailure { error: error.into(), goes_on })
        })
    }
}
