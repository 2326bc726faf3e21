//! What the tools of a run dispatch operators through: each dispatch is recorded by the run before its
//! operator starts, and what became of it before the call is answered.

mod link;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::Clock;
use backstop_react_machine::NothingLeft;
use backstop_tool::ToolContext;
use futures_util::future::{Either, join_all, select};
use layer0::error::{OperatorError, OrchError};
use layer0::event::OperatorReturned;
use layer0::failure::Failure;
use layer0::id::{CallId, RunId, SessionId, WorkflowId};
use layer0::operator::{Answer, Context, Signal, Task};
use layer0::stop::Outcome;
use layer0::{Code, Operator, Orchestrator, code};
use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tracing::Instrument;
use tracing::instrument::WithSubscriber;

use crate::digest::digest_of;
use crate::effect::Asks;
use crate::journal::{Ask, Child, Told, Wanted};
use link::{Link, Progress};

/// How long a run that was given up has to close its record.
const CLOSING: Duration = Duration::from_secs(5);

/// What the tool of one call dispatches through.
pub(crate) struct Dispatcher {
    caller: Caller,
    /// The run that was recorded for the call before its tool began.
    ahead: Mutex<Option<Child>>,
    started: Mutex<Vec<Started>>,
}

/// The run whose tool dispatches.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) run: RunId,
    pub(crate) session: SessionId,
    pub(crate) depth: u32,
    pub(crate) call: CallId,
    pub(crate) asks: Arc<Asks>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) orchestrator: Option<Arc<dyn Orchestrator>>,
    pub(crate) max_park: Option<Duration>,
}

impl Caller {
    /// Will be known what a run of this operator costs?
    fn is_priced(&self, operator: &str) -> bool {
        self.orchestrator.as_ref().is_none_or(|found| found.is_priced(operator))
    }
}

/// A run that the tool started.
struct Started {
    operator: Arc<str>,
    run: RunId,
    /// Does it keep no record?
    unrecorded: bool,
    signals: layer0::operator::Signals,
    progress: watch::Receiver<Progress>,
}

/// Does the work of a dispatch.
enum Target {
    Named(Arc<dyn Orchestrator>),
    Own(Arc<dyn Operator>),
}

impl Target {
    /// Does the operator keep a record of its run?
    fn can_go_on(&self, name: &str) -> bool {
        match self {
            Self::Named(orchestrator) => orchestrator.can_go_on(name),
            Self::Own(operator) => operator.can_go_on(),
        }
    }
}

impl Dispatcher {
    pub(crate) fn new(caller: Caller, ahead: Option<Child>) -> Self {
        Self { caller, ahead: Mutex::new(ahead), started: Mutex::default() }
    }

    /// Finds what the run that called a tool dispatches through; `None` outside of a run.
    pub(crate) fn of(context: &ToolContext) -> Option<&Self> {
        context.runtime.as_ref()?.downcast_ref()
    }

    /// Runs an operator that needs no orchestrator to be found.
    ///
    /// # Errors
    ///
    /// As [`Orchestrator::dispatch`].
    pub(crate) async fn run(
        &self,
        operator: Arc<dyn Operator>,
        task: Task,
    ) -> Result<Answer, OrchError> {
        let name: Arc<str> = operator.name().into();
        self.perform(name, Target::Own(operator), task).await
    }

    /// Did a run that was started leave, to be taken up later?
    pub(crate) fn is_left(&self) -> bool {
        let has_left = |started: &Started| {
            let progress = started.progress.borrow();
            let is_waiting = |(outcome, _): &(Outcome, _)| *outcome == Outcome::WaitingApproval;
            !started.unrecorded && progress.end.as_ref().is_some_and(is_waiting)
        };
        self.started().iter().any(has_left)
    }

    /// Ends what was started and is not waited for any more, and says what became of each.
    pub(crate) async fn close(&self) -> Vec<OperatorReturned> {
        let started = std::mem::take(&mut *self.started());
        join_all(started.into_iter().map(|started| started.returned(&self.caller.clock))).await
    }

    async fn perform(
        &self,
        operator: Arc<str>,
        target: Target,
        task: Task,
    ) -> Result<Answer, OrchError> {
        let child = self.child(&operator, &target, &task).await?;
        let (link, progress) = Link::new(Arc::clone(&self.caller.asks), child.run.clone());
        let context = self.context(&child, Arc::clone(&link));
        let name = Arc::clone(&operator);
        self.started().push(Started {
            operator,
            run: child.run.clone(),
            unrecorded: child.unrecorded,
            signals: context.signals.clone(),
            progress,
        });
        let (done, result) = oneshot::channel();
        // A run of its own task ends with a complete record when the call is given up.
        let work = async move {
            let result = match target {
                Target::Named(orchestrator) => orchestrator.dispatch(&name, task, context).await,
                Target::Own(operator) => {
                    operator.run(task, &context).await.map_err(OrchError::from)
                }
            };
            link.ended(&result);
            drop(done.send(result));
        };
        let work = work.instrument(tracing::Span::current()).with_current_subscriber();
        tokio::spawn(self.caller.clock.track(Box::pin(work)));
        result.await.unwrap_or_else(|_| Err(OrchError::panicked("the operator's task was lost")))
    }

    /// Returns the run that the work is to be done under, recorded now unless it was before.
    async fn child(
        &self,
        operator: &Arc<str>,
        target: &Target,
        task: &Task,
    ) -> Result<Child, OrchError> {
        let ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(child) = ahead.filter(|child| child.operator == *operator) {
            return Ok(child);
        }
        let wanted = Wanted {
            call: self.caller.call.clone(),
            operator: Arc::clone(operator),
            input_digest: digest_of(&input_text(&task.input)).into(),
            is_priced: self.caller.is_priced(operator),
            max_depth: None,
            unrecorded: !target.can_go_on(operator),
            at_most: task.allowance,
        };
        match self.caller.asks.ask(Ask::Dispatch(Box::new(wanted))).await {
            Some(Told::Child(Ok(child))) => Ok(*child),
            Some(Told::Child(Err(nothing))) => Err(refused(operator, &nothing)),
            _ => Err(OrchError::Shutdown("the run that dispatches is over".to_owned())),
        }
    }

    fn context(&self, child: &Child, link: Arc<Link>) -> Context {
        let Caller { run, session, depth, clock, orchestrator, .. } = &self.caller;
        let mut context = Context::root();
        context.session = Some(session.clone());
        context.run = Some(child.run.clone());
        context.parent = Some(run.clone());
        context.root = Some(child.root.clone());
        (context.attempt, context.goes_on) = (child.attempt, child.goes_on);
        context.depth = depth.saturating_add(1);
        context.deadline = child.grant.time.map(|time| clock.now().after(time));
        context.allowance = Some(child.grant.allowance);
        context.max_park = self.caller.max_park;
        context.orchestrator.clone_from(orchestrator);
        context.caller = Some(link);
        context
    }

    fn started(&self) -> MutexGuard<'_, Vec<Started>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn orchestrator(&self) -> Result<&Arc<dyn Orchestrator>, OrchError> {
        let missing = || OrchError::DispatchFailed("the run is not in an orchestrator".to_owned());
        self.caller.orchestrator.as_ref().ok_or_else(missing)
    }
}

/// What is not waited for any more is told to end, and closes its record by itself.
impl Drop for Dispatcher {
    fn drop(&mut self) {
        for started in self.started().iter() {
            if started.progress.borrow().end.is_none() {
                started.signals.push(Signal::cancel());
            }
        }
    }
}

/// A tool dispatches through the run's own orchestrator, under the run's budget, depth and deadline.
#[async_trait]
impl Orchestrator for Dispatcher {
    async fn dispatch(&self, operator: &str, task: Task, _: Context) -> Result<Answer, OrchError> {
        let orchestrator = Arc::clone(self.orchestrator()?);
        self.perform(operator.into(), Target::Named(orchestrator), task).await
    }

    async fn dispatch_many(
        &self,
        tasks: Vec<(String, Task)>,
        context: Context,
    ) -> Vec<Result<Answer, OrchError>> {
        let dispatches = tasks.into_iter().map(|(operator, task)| {
            let context = context.clone();
            async move { self.dispatch(&operator, task, context).await }
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
        let Progress { usage, end } = progress.unwrap_or_else(|| self.progress.borrow().clone());
        // One that never began, or does not end, was stopped.
        let stopped = || (Outcome::Cancelled, Some(Code::new(code::RUN_CANCELLED)));
        let (outcome, reason) = end.unwrap_or_else(stopped);
        OperatorReturned::new(self.operator, self.run, outcome, reason, usage)
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

/// Returns the input of a task as its digest is made of it.
pub(crate) fn input_text(input: &Value) -> String {
    match input {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
