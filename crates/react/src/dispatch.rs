//! What the tools of a run dispatch operators through: each dispatch is recorded by the run before its
//! operator starts, and what became of it before the call is answered.

mod link;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, Limit};
use backstop_event_log::{Lease, task_digest};
use backstop_orchestrator::LocalOrchestrator;
use backstop_react_machine::NothingLeft;
use backstop_tool::ToolContext;
use futures_util::future::{Either, join_all, select};
use layer0::error::{OperatorError, OrchError};
use layer0::event::{DoneBefore, EventKind, OperatorReturned};
use layer0::failure::Failure;
use layer0::id::{CallId, RunId, SessionId, WorkflowId};
use layer0::operator::{Answer, Context, Signal, Signals, Task};
use layer0::orchestrator::UnknownOperator;
use layer0::stop::{Outcome, Stop};
use layer0::{Code, Operator, Orchestrator, code};
use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use tracing::Instrument;
use tracing::instrument::WithSubscriber;

use crate::effect::Asks;
use crate::journal::{Ask, Child, Told, Wanted};
use link::{Link, PersonWait, Progress, Waits};

/// How long a run that was given up has to close its record.
const CLOSING: Duration = Duration::from_secs(5);

/// What the tool of one call dispatches through.
pub(crate) struct Dispatcher {
    caller: Caller,
    /// The run that was recorded for the call before its tool began.
    ahead: Mutex<Option<Child>>,
    started: Mutex<StartedRuns>,
    /// May the call be left, and made again when its run is taken up?
    may_leave: bool,
    waits: Arc<Waits>,
    /// The answer of the call, where it is that of another one.
    prior: OnceLock<PriorAnswer>,
}

/// An answer that was given before, to another call. It is no output of the tool: nothing is checked or stored anew.
#[derive(Debug, Clone)]
pub(crate) enum PriorAnswer {
    /// That of a call which is made once; its output is what the tool returns.
    Once(DoneBefore),
    /// The facts of a record that end with the answer.
    Recorded(Vec<EventKind>),
}

/// The run whose tool dispatches.
#[derive(Clone)]
pub(crate) struct Caller {
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
    /// Do runs below go on with their agents as those are defined now?
    pub(crate) adopts: bool,
    /// Whether runs below continue although their records have lost their tails.
    pub(crate) accepts_lost_tail: bool,
    /// What the caller of the run sends to it; `None` without an orchestrator.
    pub(crate) signals: Option<Signals>,
    /// The lease of the run's claim.
    pub(crate) lease: Option<Arc<dyn Lease>>,
}

impl Caller {
    /// Returns whether the run stops short of an end, or the one above it.
    fn is_detached(&self) -> bool {
        self.asks.is_detached() || self.signals.as_ref().is_some_and(Signals::is_detached)
    }
}

/// The runs that the tool started.
#[derive(Default)]
struct StartedRuns {
    runs: Vec<Started>,
    /// Has the call ended? Then nothing is started any more.
    is_closed: bool,
}

/// A run that the tool started.
struct Started {
    operator: Arc<str>,
    run: RunId,
    signals: Signals,
    progress: watch::Receiver<Progress>,
    task: AbortHandle,
}

/// What is dispatched.
enum Target {
    Named(Arc<str>),
    AtHand(Arc<dyn Operator>),
}

impl Target {
    fn name(&self) -> &str {
        match self {
            Self::Named(name) => name,
            Self::AtHand(operator) => operator.name(),
        }
    }

    /// Will be known what its run costs?
    fn is_priced(&self, orchestrator: &dyn Orchestrator) -> bool {
        match self {
            Self::Named(name) => orchestrator.is_priced(name),
            Self::AtHand(operator) => operator.is_priced(),
        }
    }

    /// Does the operator keep a record of its run?
    fn can_go_on(&self, orchestrator: &dyn Orchestrator) -> bool {
        match self {
            Self::Named(name) => orchestrator.can_go_on(name),
            Self::AtHand(operator) => operator.can_go_on(),
        }
    }
}

impl Dispatcher {
    /// Begins a call that may take so long, and may be left where it can be made again.
    pub(crate) fn new(
        caller: Caller,
        ahead: Option<Child>,
        limit: Option<Duration>,
        may_leave: bool,
    ) -> Self {
        let waits = Arc::new(Waits::new(Limit::new(Arc::clone(&caller.clock), limit)));
        let (ahead, started) = (Mutex::new(ahead), Mutex::default());
        Self { caller, ahead, started, may_leave, waits, prior: OnceLock::new() }
    }

    /// Finds what the run that called a tool dispatches through; `None` outside of a run.
    pub(crate) fn of(context: &ToolContext) -> Option<&Self> {
        context.runtime.as_ref()?.downcast_ref()
    }

    /// States that the call has the answer of another one.
    pub(crate) fn give_prior(&self, prior: PriorAnswer) {
        // A call has one answer.
        let _ = self.prior.set(prior);
    }

    /// Returns the answer of another call that this one has.
    pub(crate) fn prior(&self) -> Option<&PriorAnswer> {
        self.prior.get()
    }

    /// Runs an operator that the tool has at hand, through the run's orchestrator; through `own` where it has
    /// none.
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
        self.start(orchestrator, Target::AtHand(operator), task, None).await
    }

    /// Returns how long the call may take.
    pub(crate) fn limit(&self) -> &Limit {
        &self.waits.limit
    }

    /// Stops the call's time while it asks a person, until the guard is dropped.
    pub(crate) fn ask_person(&self) -> PersonWait {
        self.waits.ask_person()
    }

    /// Completes when runs that were started have left, to be taken up later, and nothing else of the call
    /// is at work below. The tool's own code is not gone on with then.
    pub(crate) async fn left(&self) {
        if !self.may_leave {
            return std::future::pending().await;
        }
        loop {
            // Hears of what changes while it is looked.
            let changed = self.waits.changed.notified();
            let is_left = {
                let started = self.started();
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

    /// Ends what was started and is not waited for any more, and says what became of each.
    pub(crate) async fn close(&self) -> Vec<OperatorReturned> {
        let started = {
            let mut started = self.started();
            started.is_closed = true;
            std::mem::take(&mut started.runs)
        };
        join_all(started.into_iter().map(|started| started.returned(&self.caller.clock))).await
    }

    async fn start(
        &self,
        orchestrator: Arc<dyn Orchestrator>,
        target: Target,
        task: Task,
        parts: Option<u32>,
    ) -> Result<Answer, OrchError> {
        let operator: Arc<str> = target.name().into();
        let (child, number) = self.child(&operator, &target, &*orchestrator, &task, parts).await?;
        let run = child.run.clone();
        let asks = Arc::clone(&self.caller.asks);
        let (link, progress) =
            Link::new(asks, run.clone(), Arc::clone(&self.waits), self.caller.lease.clone());
        let context = self.context(&child, Arc::clone(&link));
        let (signals, follows) = (context.signals.clone(), Arc::clone(&link));
        let (done, result) = oneshot::channel();
        // Of its own task, so that what becomes of the run is known though the call is given up.
        let work = async move {
            let result = match target {
                Target::Named(name) => orchestrator.dispatch(&name, task, context).await,
                Target::AtHand(operator) => orchestrator.perform(operator, task, context).await,
            };
            link.ended(&result);
            drop(done.send(result));
        };
        let work = work.instrument(tracing::Span::current()).with_current_subscriber();
        {
            let mut started = self.started();
            if started.is_closed {
                self.caller.asks.tell(Ask::NoDispatch { number });
                return Err(OrchError::Shutdown("the call that dispatches is over".to_owned()));
            }
            let task = tokio::spawn(self.caller.clock.track(Box::pin(work))).abort_handle();
            started.runs.push(Started { operator, run, signals, progress, task });
        }
        match result.await {
            // The call is left with it.
            Ok(Ok(answer))
                if self.may_leave
                    && answer.stop == Stop::WaitingApproval
                    && follows.has_waited() =>
            {
                std::future::pending().await
            }
            Ok(result) => result,
            Err(_) => Err(OrchError::panicked("the operator's task was lost")),
        }
    }

    async fn dispatch_one(
        &self,
        operator: &str,
        task: Task,
        parts: Option<u32>,
    ) -> Result<Answer, OrchError> {
        let orchestrator = Arc::clone(self.orchestrator()?);
        // What is recorded already is answered in any case.
        if let Some(unknown) = orchestrator.unknown(operator).filter(|_| !self.is_ahead(operator)) {
            return Err(OrchError::OperatorNotFound(unknown.name.into()));
        }
        self.start(orchestrator, Target::Named(operator.into()), task, parts).await
    }

    /// Is the run recorded that a dispatch of this operator is to be done under?
    fn is_ahead(&self, operator: &str) -> bool {
        let ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.as_ref().is_some_and(|child| *child.operator == *operator)
    }

    /// Returns the run that the work is to be done under, recorded now unless it was before, and the number of its
    /// dispatch.
    async fn child(
        &self,
        operator: &Arc<str>,
        target: &Target,
        orchestrator: &dyn Orchestrator,
        task: &Task,
        parts: Option<u32>,
    ) -> Result<(Child, u64), OrchError> {
        let ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(child) = ahead.filter(|child| child.operator == *operator) {
            return Ok((child, 0));
        }
        let number = self.caller.asks.number_dispatch();
        let wanted = Wanted {
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
        let told = self.caller.asks.ask(Ask::Dispatch(Box::new(wanted))).await;
        std::mem::forget(gives_up);
        match told {
            Some(Told::Child(Ok(child))) => Ok((*child, number)),
            Some(Told::Child(Err(nothing))) => Err(refused(operator, &nothing)),
            _ => Err(OrchError::Shutdown("the run that dispatches is over".to_owned())),
        }
    }

    fn context(&self, child: &Child, link: Arc<Link>) -> Context {
        let Caller { run, session, sessions, depth, clock, orchestrator, .. } = &self.caller;
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
        context.deadline = child.grant.time.map(|time| clock.now().after(time));
        context.allowance = Some(child.grant.allowance);
        (context.max_park, context.adopts) = (self.caller.max_park, self.caller.adopts);
        context.accepts_lost_tail = self.caller.accepts_lost_tail;
        context.orchestrator.clone_from(orchestrator);
        context.caller = Some(link);
        context
    }

    fn started(&self) -> MutexGuard<'_, StartedRuns> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn orchestrator(&self) -> Result<&Arc<dyn Orchestrator>, OrchError> {
        let missing = || OrchError::DispatchFailed("the run is not in an orchestrator".to_owned());
        self.caller.orchestrator.as_ref().ok_or_else(missing)
    }
}

/// What is not waited for any more is given up: its orchestrator sees to it that it closes its record. If the run
/// itself stops short of an end, another process resumes it, and nobody gave up its runs below.
impl Drop for Dispatcher {
    fn drop(&mut self) {
        let is_detached = self.caller.is_detached();
        for started in &self.started().runs {
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
        self.start(orchestrator, Target::AtHand(operator), task, None).await
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
        // They are asked for in this order.
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

impl Started {
    fn outcome(&self) -> Option<Outcome> {
        self.progress.borrow().end.as_ref().map(|(outcome, _)| *outcome)
    }

    /// Waits for the end; a run that is not waited for any more is told to end.
    async fn returned(mut self, clock: &Arc<dyn Clock>) -> OperatorReturned {
        if self.progress.borrow().end.is_none() {
            self.signals.push(Signal::cancel());
        }
        let ended = Box::pin(self.progress.wait_for(|progress| progress.end.is_some()));
        let progress = match select(ended, clock.sleep(CLOSING)).await {
            Either::Left((Ok(progress), _)) => Some(progress.clone()),
            Either::Left((Err(_), _)) | Either::Right(_) => None,
        };
        self.task.abort();
        let Progress { usage, end } = progress.unwrap_or_else(|| self.progress.borrow().clone());
        // One that never began, or does not end, was stopped.
        let stopped = || (Outcome::Cancelled, Some(Code::new(code::RUN_CANCELLED)));
        let (outcome, reason) = end.unwrap_or_else(stopped);
        OperatorReturned::new(self.operator, self.run, outcome, reason, usage)
    }
}

/// Tells the run that a dispatch is given up, when it is dropped before there is an answer.
struct GivesUp<'a> {
    asks: &'a Asks,
    number: u64,
}

impl Drop for GivesUp<'_> {
    fn drop(&mut self) {
        self.asks.tell(Ask::NoDispatch { number: self.number });
    }
}

/// Says that an operator does not start because its caller has nothing to give it.
fn refused(operator: &str, nothing: &NothingLeft) -> OrchError {
    let NothingLeft { reason, message, .. } = nothing;
    let why = format!("`{operator}` was not started: {message}");
    match code::find(reason.as_str()) {
        Some(entry) if entry.code == code::ORCH_DEPTH => OrchError::TooDeep(why),
        Some(entry) => OrchError::from(OperatorError::failed(NotStarted { code: entry.code, why })),
        None => OrchError::DispatchFailed(why),
    }
}

/// Why an operator did not start: a budget of its caller.
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
