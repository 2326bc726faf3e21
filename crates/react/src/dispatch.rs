//! Dispatches of operators by the tools of a run: the run records each dispatch before its operator starts, and the
//! outcome before the call is answered.

mod link;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, Limit};
use backstop_event_log::{Lease, task_digest};
use backstop_orchestrator::LocalOrchestrator;
use backstop_react_machine::NoBudgetLeft;
use backstop_redact::Redactor;
use backstop_tool::ToolContext;
use futures_util::future::{Either, join_all, select};
use layer0::error::{OperatorError, OrchError};
use layer0::event::{DoneBefore, EventKind, OperatorReturned};
use layer0::failure::Failure;
use layer0::id::{CallId, RunId, SessionId, WorkflowId};
use layer0::operator::{Answer, Context, Signal, Signals, Task};
use layer0::orchestrator::UnknownOperator;
use layer0::stop::{Outcome, Stop};
use layer0::{Operator, Orchestrator, code};
use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use tracing::Instrument;
use tracing::instrument::WithSubscriber;

use crate::effect::Asks;
use crate::journal::{Child, DispatchRequest, StepReply, StepRequest};
use crate::once::begun::EndedCall;
use link::{CallWaits, ChildEnd, ChildProgress, DispatchLink, PersonWait};

/// Time for a run that was given up to close its record.
const CLOSING: Duration = Duration::from_secs(5);

/// The orchestrator of the tool of one call.
pub(crate) struct Dispatcher {
    caller: DispatchingRun,
    /// The child run that was recorded for the call before its tool began.
    ahead: Mutex<Option<Child>>,
    started: Mutex<StartedRuns>,
    /// Whether a suspended run drops the call and repeats it on resume.
    may_leave: bool,
    waits: Arc<CallWaits>,
    /// The earlier answer that this call returns, if any.
    prior: OnceLock<PriorAnswer>,
    /// The end of a call that is made once, until it is written.
    once: Mutex<Option<EndedCall>>,
}

/// An answer of an earlier call. It is not an output of the tool: it is neither checked nor stored again.
#[derive(Debug, Clone)]
pub(crate) enum PriorAnswer {
    /// The answer of a call that is made once; its output is the tool's output.
    Once(DoneBefore),
    /// Recorded events, the answer last.
    Recorded(Vec<EventKind>),
}

/// The run whose tool dispatches.
#[derive(Clone)]
pub(crate) struct DispatchingRun {
    pub(crate) run: RunId,
    pub(crate) session: SessionId,
    /// The sessions whose stored errors and results the run may read.
    pub(crate) sessions: Arc<[SessionId]>,
    pub(crate) depth: u32,
    pub(crate) call: CallId,
    pub(crate) asks: Arc<Asks>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) orchestrator: Option<Arc<dyn Orchestrator>>,
    pub(crate) max_park: Option<Duration>,
    /// Whether child runs adopt the current definitions of their agents.
    pub(crate) adopts: bool,
    /// Whether child runs continue although their records have lost their tails.
    pub(crate) accepts_lost_tail: bool,
    /// Signals of the run's caller; `None` without an orchestrator.
    pub(crate) signals: Option<Signals>,
    /// The lease of the run's claim.
    pub(crate) lease: Option<Arc<dyn Lease>>,
    pub(crate) redactor: Redactor,
}

impl DispatchingRun {
    /// Returns whether the run or its caller stopped without an end.
    fn is_detached(&self) -> bool {
        self.asks.is_detached() || self.signals.as_ref().is_some_and(Signals::is_detached)
    }
}

/// The child runs that the tool started.
#[derive(Default)]
struct StartedRuns {
    runs: Vec<StartedRun>,
    /// Whether the call has ended; nothing starts after its end.
    is_closed: bool,
}

/// A child run that the tool started.
struct StartedRun {
    operator: Arc<str>,
    run: RunId,
    signals: Signals,
    progress: watch::Receiver<ChildProgress>,
    task: AbortHandle,
}

/// The operator to dispatch.
enum DispatchTarget {
    Named(Arc<str>),
    AtHand(Arc<dyn Operator>),
}

impl DispatchTarget {
    fn name(&self) -> &str {
        match self {
            Self::Named(name) => name,
            Self::AtHand(operator) => operator.name(),
        }
    }

    /// Returns whether the cost of its run will be known.
    fn is_priced(&self, orchestrator: &dyn Orchestrator) -> bool {
        match self {
            Self::Named(name) => orchestrator.is_priced(name),
            Self::AtHand(operator) => operator.is_priced(),
        }
    }

    /// Returns whether the operator keeps a record of its run.
    fn can_go_on(&self, orchestrator: &dyn Orchestrator) -> bool {
        match self {
            Self::Named(name) => orchestrator.can_go_on(name),
            Self::AtHand(operator) => operator.can_go_on(),
        }
    }
}

impl Dispatcher {
    /// Returns the dispatcher of a call with this time limit. With `may_leave`, a suspended run drops the call and
    /// repeats it later.
    pub(crate) fn new(
        caller: DispatchingRun,
        ahead: Option<Child>,
        limit: Option<Duration>,
        may_leave: bool,
    ) -> Self {
        let waits = Arc::new(CallWaits::new(Limit::new(Arc::clone(&caller.clock), limit)));
        let (ahead, started) = (Mutex::new(ahead), Mutex::default());
        let (prior, once) = (OnceLock::new(), Mutex::default());
        Self { caller, ahead, started, may_leave, waits, prior, once }
    }

    /// Returns the dispatcher of the run that called a tool; `None` outside of a run.
    pub(crate) fn from_context(context: &ToolContext) -> Option<&Self> {
        context.runtime.as_ref()?.downcast_ref()
    }

    /// Sets an earlier answer as the answer of the call.
    pub(crate) fn give_prior(&self, prior: PriorAnswer) {
        // A call has one answer.
        let _ = self.prior.set(prior);
    }

    /// Returns the earlier answer that this call returns.
    pub(crate) fn prior(&self) -> Option<&PriorAnswer> {
        self.prior.get()
    }

    /// Keeps the end of a call that is made once, for its step to write.
    pub(crate) fn end_once(&self, ended: EndedCall) {
        *self.once.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
    }

    /// Writes the end of a call that is made once.
    pub(crate) async fn note_once(&self) {
        let ended = self.once.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ended) = ended {
            ended.note().await;
        }
    }

    /// Runs an operator of the tool through the run's orchestrator, or through `own` if the run has none.
    ///
    /// # Errors
    ///
    /// As [`Orchestrator::dispatch`].
    pub(crate) async fn perform_or(
        &self,
        operator: Arc<dyn Operator>,
        task: Task,
        own: &LocalOrchestrator,
    ) -> Result<Answer, OrchError> {
        let orchestrator = self.caller.orchestrator.clone();
        let orchestrator = orchestrator.unwrap_or_else(|| Arc::new(own.clone()));
        self.start(orchestrator, DispatchTarget::AtHand(operator), task, None).await
    }

    /// Returns the time limit of the call.
    pub(crate) fn limit(&self) -> &Limit {
        &self.waits.limit
    }

    /// Stops the call's time while it asks a person, until the guard is dropped.
    pub(crate) fn ask_person(&self) -> PersonWait {
        self.waits.ask_person()
    }

    /// Completes when child runs were suspended, to be resumed later, and no other child run of the call is running.
    /// The tool's own code is dropped then.
    pub(crate) async fn wait_for_suspension(&self) {
        if !self.may_leave {
            return std::future::pending().await;
        }
        loop {
            // Registered before the check, so that no change is missed.
            let changed = self.waits.changed.notified();
            let is_left = {
                let started = self.lock_started();
                let ends = started.runs.iter().map(|started| started.outcome());
                let ends: Option<Vec<_>> = ends.collect();
                ends.is_some_and(|ends| ends.contains(&Outcome::WaitingApproval))
            };
            if is_left {
                return;
            }
            changed.await;
        }
    }

    /// Stops the child runs that nothing waits for any more, and returns the outcome of each.
    pub(crate) async fn close(&self) -> Vec<OperatorReturned> {
        let started = {
            let mut started = self.lock_started();
            started.is_closed = true;
            std::mem::take(&mut started.runs)
        };
        join_all(started.into_iter().map(|started| started.wait_for_end(&self.caller.clock))).await
    }

    async fn start(
        &self,
        orchestrator: Arc<dyn Orchestrator>,
        target: DispatchTarget,
        task: Task,
        parts: Option<u32>,
    ) -> Result<Answer, OrchError> {
        let operator: Arc<str> = target.name().into();
        let (child, number) = self.child(&operator, &target, &*orchestrator, &task, parts).await?;
        let run = child.run.clone();
        let asks = Arc::clone(&self.caller.asks);
        let (link, progress) = DispatchLink::new(
            asks,
            run.clone(),
            Arc::clone(&self.waits),
            (self.caller.lease.clone(), self.caller.redactor.clone()),
        );
        let context = self.context(&child, Arc::clone(&link));
        let (signals, follows) = (context.signals.clone(), Arc::clone(&link));
        let (done, result) = oneshot::channel();
        // In its own task, so that the run's outcome is known even if the call is given up.
        let work = async move {
            let result = match target {
                DispatchTarget::Named(name) => orchestrator.dispatch(&name, task, context).await,
                DispatchTarget::AtHand(operator) => {
                    orchestrator.perform(operator, task, context).await
                }
            };
            link.record_end(&result);
            drop(done.send(result));
        };
        let work = work.instrument(tracing::Span::current()).with_current_subscriber();
        {
            let mut started = self.lock_started();
            if started.is_closed {
                self.caller.asks.tell(StepRequest::NoDispatch { number });
                return Err(OrchError::Shutdown("the call that dispatches is over".to_owned()));
            }
            let task = tokio::spawn(self.caller.clock.track(Box::pin(work))).abort_handle();
            started.runs.push(StartedRun { operator, run, signals, progress, task });
        }
        match result.await {
            // The call is dropped with it.
            Ok(Ok(answer))
                if self.may_leave
                    && answer.stop == Stop::WaitingApproval
                    && follows.has_waited() =>
            {
                std::future::pending().await
            }
            Ok(result) => result,
            Err(_) => Err(OrchError::from_panic("the operator's task was lost")),
        }
    }

    async fn dispatch_one(
        &self,
        operator: &str,
        task: Task,
        parts: Option<u32>,
    ) -> Result<Answer, OrchError> {
        let orchestrator = Arc::clone(self.orchestrator()?);
        // A recorded dispatch is answered even if its operator is missing.
        if let Some(unknown) = orchestrator.unknown(operator).filter(|_| !self.is_ahead(operator)) {
            return Err(OrchError::OperatorNotFound(unknown.name.into()));
        }
        self.start(orchestrator, DispatchTarget::Named(operator.into()), task, parts).await
    }

    /// Returns whether the child run for a dispatch of this operator is recorded already.
    fn is_ahead(&self, operator: &str) -> bool {
        let ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.as_ref().is_some_and(|child| *child.operator == *operator)
    }

    /// Returns the child run of a dispatch, which is recorded now unless it was before, and the number of the dispatch.
    async fn child(
        &self,
        operator: &Arc<str>,
        target: &DispatchTarget,
        orchestrator: &dyn Orchestrator,
        task: &Task,
        parts: Option<u32>,
    ) -> Result<(Child, u64), OrchError> {
        let ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(child) = ahead.filter(|child| child.operator == *operator) {
            return Ok((child, 0));
        }
        let number = self.caller.asks.number_dispatch();
        let wanted = DispatchRequest {
            call: self.caller.call.clone(),
            operator: Arc::clone(operator),
            input_digest: task_digest(task).into(),
            is_priced: target.is_priced(orchestrator),
            max_depth: None,
            unrecorded: !target.can_go_on(orchestrator),
            at_most: task.allowance,
            parts,
            number,
        };
        let gives_up = GivesUp { asks: &self.caller.asks, number };
        let told = self.caller.asks.ask(StepRequest::Dispatch(Box::new(wanted))).await;
        std::mem::forget(gives_up);
        match told {
            Some(StepReply::Child(Ok(child))) => Ok((*child, number)),
            Some(StepReply::Child(Err(nothing))) => Err(build_refusal(operator, &nothing)),
            _ => Err(OrchError::Shutdown("the run that dispatches is over".to_owned())),
        }
    }

    fn context(&self, child: &Child, link: Arc<DispatchLink>) -> Context {
        let DispatchingRun { run, session, sessions, depth, clock, orchestrator, .. } =
            &self.caller;
        let mut context = Context::root();
        context.session = Some(session.clone());
        context.sessions = sessions.iter().filter(|other| *other != session).cloned().collect();
        context.run = Some(child.run.clone());
        context.parent = Some(run.clone());
        context.root = Some(child.root.clone());
        (context.attempt, context.goes_on) = (child.attempt, child.goes_on);
        context.is_recorded = child.is_recorded;
        context.labels = Arc::clone(&child.labels);
        context.depth = depth.saturating_add(1);
        // time of day: the orchestrator takes the deadline at once, and measures the time left.
        context.deadline = child.grant.time.map(|time| clock.now().after(time));
        context.allowance = Some(child.grant.allowance);
        (context.max_park, context.adopts) = (self.caller.max_park, self.caller.adopts);
        context.accepts_lost_tail = self.caller.accepts_lost_tail;
        context.orchestrator.clone_from(orchestrator);
        context.caller = Some(link);
        context
    }

    fn lock_started(&self) -> MutexGuard<'_, StartedRuns> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn orchestrator(&self) -> Result<&Arc<dyn Orchestrator>, OrchError> {
        let missing = || OrchError::DispatchFailed("the run is not in an orchestrator".to_owned());
        self.caller.orchestrator.as_ref().ok_or_else(missing)
    }
}

/// Gives up the child runs that nothing waits for any more: the orchestrator closes their records. If the run itself
/// stopped without an end, another process resumes it, and its child runs are not given up.
impl Drop for Dispatcher {
    fn drop(&mut self) {
        let is_detached = self.caller.is_detached();
        for started in &self.lock_started().runs {
            if is_detached {
                started.signals.detach();
            }
            started.task.abort();
        }
    }
}

/// A tool dispatches through the run's own orchestrator, under the run's budget, depth and deadline.
#[async_trait]
impl Orchestrator for Dispatcher {
    async fn dispatch(&self, operator: &str, task: Task, _: Context) -> Result<Answer, OrchError> {
        self.dispatch_one(operator, task, None).await
    }

    async fn perform(
        &self,
        operator: Arc<dyn Operator>,
        task: Task,
        _: Context,
    ) -> Result<Answer, OrchError> {
        let orchestrator = Arc::clone(self.orchestrator()?);
        self.start(orchestrator, DispatchTarget::AtHand(operator), task, None).await
    }

    fn unknown(&self, operator: &str) -> Option<UnknownOperator> {
        self.caller.orchestrator.as_ref()?.unknown(operator)
    }

    fn is_priced(&self, operator: &str) -> bool {
        self.caller.orchestrator.as_ref().is_none_or(|found| found.is_priced(operator))
    }

    fn can_go_on(&self, operator: &str) -> bool {
        self.caller.orchestrator.as_ref().is_some_and(|found| found.can_go_on(operator))
    }

    async fn dispatch_many(
        &self,
        tasks: Vec<(String, Task)>,
        _: Context,
    ) -> Vec<Result<Answer, OrchError>> {
        let count = tasks.len();
        // They are requested in this order.
        let dispatches =
            tasks.into_iter().enumerate().map(|(place, (operator, task))| async move {
                let parts = u32::try_from(count - place).unwrap_or(u32::MAX);
                self.dispatch_one(&operator, task, Some(parts)).await
            });
        join_all(dispatches).await
    }

    async fn signal(&self, workflow: &WorkflowId, signal: Signal) -> Result<(), OrchError> {
        self.orchestrator()?.signal(workflow, signal).await
    }

    async fn query(&self, workflow: &WorkflowId) -> Result<Value, OrchError> {
        self.orchestrator()?.query(workflow).await
    }
}

impl StartedRun {
    fn outcome(&self) -> Option<Outcome> {
        self.progress.borrow().end.as_ref().map(|end| end.outcome)
    }

    /// Waits for the end, after stopping a run that nothing waits for any more.
    async fn wait_for_end(mut self, clock: &Arc<dyn Clock>) -> OperatorReturned {
        if self.progress.borrow().end.is_none() {
            self.signals.push(Signal::cancel());
        }
        let ended = Box::pin(self.progress.wait_for(|progress| progress.end.is_some()));
        let progress = match select(ended, clock.sleep(CLOSING)).await {
            Either::Left((Ok(progress), _)) => Some(progress.clone()),
            Either::Left((Err(_), _)) | Either::Right(_) => None,
        };
        self.task.abort();
        let ChildProgress { usage, end } =
            progress.unwrap_or_else(|| self.progress.borrow().clone());
        // A run that never began, or does not end, was stopped.
        end.unwrap_or_else(ChildEnd::stopped).into_event(self.operator, self.run, usage)
    }
}

/// Guard of a request: when dropped before the answer, gives the dispatch up.
struct GivesUp<'a> {
    asks: &'a Asks,
    number: u64,
}

impl Drop for GivesUp<'_> {
    fn drop(&mut self) {
        self.asks.tell(StepRequest::NoDispatch { number: self.number });
    }
}

/// Returns the error of an operator that does not start because its caller has no budget for it.
fn build_refusal(operator: &str, nothing: &NoBudgetLeft) -> OrchError {
    let NoBudgetLeft { reason, message, .. } = nothing;
    let why = format!("`{operator}` was not started: {message}");
    match code::find(reason.as_str()) {
        Some(entry) if entry.code == code::ORCH_DEPTH => OrchError::TooDeep(why),
        Some(entry) => {
            OrchError::from(OperatorError::from_failure(NotStarted { code: entry.code, why }))
        }
        None => OrchError::DispatchFailed(why),
    }
}

/// Error of an operator that did not start because a budget of its caller is used up.
///
/// Retry: never. Effect: none.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
struct NotStarted {
    code: &'static str,
    why: String,
}

impl Failure for NotStarted {
    fn facts(&self) -> layer0::failure::Facts {
        layer0::failure::Facts::never(self.code, layer0::failure::Effect::None)
    }
}
