//! The protocol of something that can be dispatched.

mod program;
mod signal;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::code::Code;
use crate::error::{OperatorError, OrchError};
use crate::event::{Cause, WaitFor};
use crate::id::{ApprovalId, RunId, SessionId};
use crate::message::Image;
use crate::orchestrator::Orchestrator;
use crate::stop::Stop;
use crate::time::Timestamp;
use crate::usage::{Allowance, Usage};

pub use program::OperatorProgram;
pub use signal::{Signal, Signals};

/// Does one piece of work for a caller that names it.
#[async_trait]
pub trait Operator: Send + Sync {
    /// Returns the name it is dispatched by.
    fn name(&self) -> &str;

    /// Returns the JSON Schema that its input has to fit, where it declares one.
    fn input_schema(&self) -> Option<&Value> {
        None
    }

    /// Returns the JSON Schema that its answer fits, where it declares one.
    fn output_schema(&self) -> Option<&Value> {
        None
    }

    /// Returns the names of the operators that it dispatches, as far as they are known before it does. An
    /// orchestrator that has not all of them is not made.
    fn calls(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Returns whether the cost of its runs will be known. An operator without a price is not dispatched below a run
    /// with a cost budget.
    fn is_priced(&self) -> bool {
        true
    }

    /// Returns whether it keeps a record, so that a failed run can continue without repeating work. An operator that
    /// does keeps to its context's deadline by itself. Any other is dropped at its deadline; its dispatches count for
    /// its caller all the same.
    fn can_go_on(&self) -> bool {
        false
    }

    /// Returns the digest of its definition, if it keeps a record: its runs are continued by an operator with the same
    /// digest.
    fn digest(&self) -> Option<Arc<str>> {
        None
    }

    /// Returns the program that does the same work in a process of its own, where there is one: only that can run
    /// in an [`Environment`](crate::Environment) with walls.
    fn program(&self) -> Option<OperatorProgram> {
        None
    }

    /// Does the work.
    ///
    /// # Errors
    ///
    /// Any variant of [`OperatorError`]; its facts tell the orchestrator whether to try again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the work; what the operator recorded until then stays.
    async fn run(&self, task: Task, context: &Context) -> Result<Answer, OperatorError>;
}

/// A task for an operator. As JSON, `max_park_ms` is in milliseconds, and fields equal to those of [`Task::json`] are
/// left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Task {
    /// The input: text for a model, any JSON for code.
    pub input: Value,
    /// The images of the input.
    #[serde(default, skip_serializing_if = "is_default")]
    pub images: Arc<[Image]>,
    /// Whether the same task may be dispatched again after it may have acted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub idempotent: bool,
    /// JSON Schema that the answer has to fit; an agent is given it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub output_schema: Option<Value>,
    /// Whether the operator gets the session's messages so far.
    #[serde(default, skip_serializing_if = "is_default")]
    pub history: bool,
    /// The most that it may use of its caller's budget; by default as much as the caller can give.
    #[serde(default, skip_serializing_if = "is_default")]
    pub allowance: Option<Allowance>,
    /// The longest time for which an endpoint may ask to be left alone without a failure: the work is parked, and
    /// continues then. The orchestrator's default if `None`.
    #[serde(
        default,
        rename = "max_park_ms",
        skip_serializing_if = "is_default",
        with = "crate::millis::optional"
    )]
    pub max_park: Option<Duration>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Task {
    /// Makes a task from text; it is not idempotent.
    pub fn text(input: impl Into<String>) -> Self {
        Self::json(Value::String(input.into()))
    }

    /// Makes a task from JSON; it is not idempotent.
    #[must_use]
    pub fn json(input: Value) -> Self {
        Self {
            input,
            images: Arc::default(),
            idempotent: false,
            output_schema: None,
            history: false,
            allowance: None,
            max_park: None,
        }
    }

    /// Shows images with the input.
    #[must_use]
    pub fn images(mut self, images: impl Into<Arc<[Image]>>) -> Self {
        self.images = images.into();
        self
    }

    /// Asks for an answer that fits a JSON Schema.
    #[must_use]
    pub fn output_schema(mut self, schema: Value) -> Self {
        self.output_schema = Some(schema);
        self
    }

    /// Gives the operator the session's messages so far.
    #[must_use]
    pub const fn with_history(mut self) -> Self {
        self.history = true;
        self
    }

    /// Lets the operator use no more of its caller's budget than this.
    #[must_use]
    pub const fn allowance(mut self, allowance: Allowance) -> Self {
        self.allowance = Some(allowance);
        self
    }

    /// Lets the work be parked for so long where an endpoint asks to be left alone, rather than fail.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use layer0::operator::Task;
    ///
    /// let task = Task::text("Summarise the night.").max_park(Duration::from_secs(6 * 3600));
    /// assert!(task.max_park.is_some());
    /// ```
    #[must_use]
    pub const fn max_park(mut self, longest: Duration) -> Self {
        self.max_park = Some(longest);
        self
    }

    /// States that dispatching the task again does no harm.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }
}

/// An operator's answer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// The answer: text from a model, any JSON from code.
    pub output: Value,
    /// The way it ended.
    pub stop: Stop,
    /// The run it recorded, where it records one.
    pub run: Option<RunId>,
    /// Its usage, dispatches included.
    pub usage: Usage,
    /// The time at which parked work continues by itself; its stop is [`Stop::WaitingApproval`] meanwhile.
    pub parked_until: Option<Timestamp>,
}

impl Answer {
    /// Makes a completed answer that recorded no run and used nothing.
    #[must_use]
    pub fn completed(output: Value) -> Self {
        Self {
            output,
            stop: Stop::Completed,
            run: None,
            usage: Usage::default(),
            parked_until: None,
        }
    }
}

/// The surroundings of an operator: its session, its depth, its caller and the operators it may call.
///
/// ```
/// use layer0::operator::Context;
///
/// let mut context = Context::root();
/// context.session = Some("support-17".into());
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Context {
    /// The session; sub-dispatches share their caller's.
    pub session: Option<SessionId>,
    /// Other sessions whose stored errors and results the work may read, since its input may refer to them.
    pub sessions: Arc<[SessionId]>,
    /// The run to record the work under.
    pub run: Option<RunId>,
    /// The runs of the session that are dispatched together, this one included, if nothing dispatched them: they are
    /// open at the same time, and all but the first that begins are branches of the session's transcript.
    pub together: Arc<[RunId]>,
    /// The run that dispatched this operator.
    pub parent: Option<RunId>,
    /// The run at the head of its callers.
    pub root: Option<RunId>,
    /// The number of the attempt at the run: 1, 2, …. From the second on, a failed run continues from its end.
    pub attempt: u32,
    /// Whether there may be a record of the run. An operator that keeps one continues it: an open run is resumed, an
    /// ended one is answered from its record.
    pub goes_on: bool,
    /// Whether a record of the run exists already. If it is gone, that is a failure and the run is not begun anew.
    pub is_recorded: bool,
    /// Whether the run, and those that it dispatched, may adopt their operators' current definitions. An operator that
    /// keeps a record notes its definition there.
    pub adopts: bool,
    /// Whether the run, and those that it dispatched, may continue although acknowledged events are missing from their
    /// records: a person has accepted that.
    pub accepts_lost_tail: bool,
    /// The number of dispatches above this one.
    pub depth: u32,
    /// The deadline of the work.
    pub deadline: Option<Timestamp>,
    /// The part of its caller's budget that it may use; `None` without bound.
    pub allowance: Option<Allowance>,
    /// The longest time for which an endpoint may ask to be left alone without a failure: the work is parked, and
    /// continues then. Nothing is parked if `None`.
    pub max_park: Option<Duration>,
    /// The orchestrator to dispatch through; `None` outside of one.
    pub orchestrator: Option<Arc<dyn Orchestrator>>,
    /// The signals sent to this dispatch while it runs.
    pub signals: Signals,
    /// The receiver of reports on the work.
    pub caller: Option<Arc<dyn Caller>>,
    /// The receiver of reports on the operator's own work; `None` if there is none.
    pub own_work: Option<Arc<dyn OwnWork>>,
    /// The step of a workflow that is dispatched next; counted from 1 where it has no name.
    pub step: Option<Arc<str>>,
    /// The part of a workflow whose steps are counted by themselves.
    pub scope: Option<Arc<str>>,
    /// The number of dispatches that share the rest of the caller's budget, the next one included; 2 if it is not
    /// known.
    pub shares: Option<u32>,
    /// The delivery to a behaviour that led to the work, where one did.
    pub cause: Option<Cause>,
    /// The labels of the run at the head of its callers; runs below have them too.
    pub labels: Arc<BTreeMap<String, String>>,
}

/// The caller of an operator, as the operator sees it while it works.
#[async_trait]
pub trait Caller: Send + Sync {
    /// Takes in what the work has used so far.
    fn used(&self, usage: Usage);

    /// Receives the report that the work can only wait. Returns when the operator has to leave: it answers with
    /// [`Stop::WaitingApproval`], and is resumed later.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future reports that the work continues.
    async fn wait(&self, waiting: Waiting);

    /// Asks for more of the caller's budget, which was given more so many times before. Returns `None` when
    /// nothing is left.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes nothing; what was given is given again when it is asked for anew.
    async fn more(&self, given: u32) -> Option<Allowance>;

    /// Takes in that the operator is about to be tried again.
    ///
    /// # Errors
    ///
    /// [`OrchError::DispatchFailed`], when the caller is gone.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the attempt was noted or not.
    async fn retry(&self, attempt: u32) -> Result<(), OrchError>;

    /// Waits until work below may begin to act on the world; for ever, once another process has the caller's run.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn until_may_act(&self) {}

    /// Waits until work below that acts on the world has to stop: another process has the caller's run, or may soon.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn must_stop(&self) {
        std::future::pending::<()>().await;
    }
}

/// The receiver of reports on an operator's own work.
pub trait OwnWork: Send + Sync {
    /// Notes that a piece of work began.
    fn begin(&self);

    /// Notes that a piece of work ended.
    fn end(&self);
}

/// A piece of an operator's own work; made by [`Context::busy`].
#[must_use = "the work ends when it is dropped"]
pub struct BusyGuard(Option<Arc<dyn OwnWork>>);

impl BusyGuard {
    fn new(work: Option<Arc<dyn OwnWork>>) -> Self {
        if let Some(work) = &work {
            work.begin();
        }
        Self(work)
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        if let Some(work) = self.0.take() {
            work.end();
        }
    }
}

impl fmt::Debug for BusyGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BusyGuard").finish_non_exhaustive()
    }
}

/// The wait of work that can do nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Waiting {
    /// The reason of the wait.
    pub r#for: WaitFor,
    /// The open approvals, in the work and below.
    pub approvals: Vec<ApprovalId>,
    /// The time at which parked work continues by itself.
    #[serde(default)]
    pub until: Option<Timestamp>,
    /// The reason it is parked, if it is.
    #[serde(default)]
    pub reason: Option<Code>,
    /// Whether something would be lost if the work left: a question to a person in this process, or code that cannot be
    /// continued. If so, nothing above leaves either.
    #[serde(default)]
    pub stays: bool,
}

impl Waiting {
    /// Makes a wait.
    #[must_use]
    pub const fn new(r#for: WaitFor, approvals: Vec<ApprovalId>) -> Self {
        Self { r#for, approvals, until: None, reason: None, stays: false }
    }

    /// States whether something would be lost if the work left.
    #[must_use]
    pub const fn stays(mut self, stays: bool) -> Self {
        self.stays = stays;
        self
    }
}

impl Context {
    /// Makes the context of a first dispatch, outside an orchestrator.
    #[must_use]
    pub fn root() -> Self {
        Self {
            session: None,
            sessions: Arc::default(),
            run: None,
            together: Arc::default(),
            parent: None,
            root: None,
            attempt: 1,
            goes_on: false,
            is_recorded: false,
            adopts: false,
            accepts_lost_tail: false,
            depth: 0,
            deadline: None,
            allowance: None,
            max_park: None,
            orchestrator: None,
            signals: Signals::default(),
            caller: None,
            own_work: None,
            step: None,
            scope: None,
            shares: None,
            cause: None,
            labels: Arc::default(),
        }
    }

    /// Names the step of a workflow that is dispatched next. If the run is recorded, a finished step of this name is
    /// answered from the record when the run continues; a repeated name is counted: `draft`, `draft~2`.
    ///
    /// ```
    /// use layer0::error::OperatorError;
    /// use layer0::operator::{Answer, Context, Task};
    ///
    /// async fn review(topic: Task, context: &Context) -> Result<Answer, OperatorError> {
    ///     let draft = context.step("draft").dispatch("writer", topic).await?;
    ///     context.step("check").dispatch("critic", Task::json(draft.output)).await
    /// }
    /// ```
    #[must_use]
    pub fn step(&self, name: impl Into<Arc<str>>) -> Self {
        Self { step: Some(name.into()), ..self.clone() }
    }

    /// Opens a part of a workflow whose steps are counted by themselves. Lines of steps that run side by side need one
    /// each: the order in which they ask differs from process to process.
    ///
    /// ```
    /// use layer0::error::OperatorError;
    /// use layer0::operator::{Answer, Context, Task};
    ///
    /// async fn line(topic: &str, context: &Context) -> Result<Answer, OperatorError> {
    ///     let line = context.scope(topic);
    ///     let draft = line.dispatch("writer", Task::text(topic)).await?;
    ///     line.dispatch("critic", Task::json(draft.output)).await
    /// }
    /// ```
    #[must_use]
    pub fn scope(&self, name: impl AsRef<str>) -> Self {
        let name = name.as_ref();
        let scope = match &self.scope {
            Some(outer) => format!("{outer}/{name}").into(),
            None => name.into(),
        };
        Self { scope: Some(scope), ..self.clone() }
    }

    /// States how many dispatches are to share what the caller has left, the next one included.
    #[must_use]
    pub fn sharing(&self, dispatches: usize) -> Self {
        Self { shares: Some(u32::try_from(dispatches).unwrap_or(u32::MAX)), ..self.clone() }
    }

    /// Calls another operator one level deeper, in the same session.
    ///
    /// # Errors
    ///
    /// [`OperatorError::SubDispatch`], with what the orchestrator answered inside.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the sub-dispatch.
    pub async fn dispatch(&self, operator: &str, task: Task) -> Result<Answer, OperatorError> {
        let Some(orchestrator) = &self.orchestrator else {
            return Err(OperatorError::cannot_dispatch(operator, "there is no orchestrator"));
        };
        orchestrator
            .dispatch(operator, task, self.below())
            .await
            .map_err(|error| OperatorError::sub_dispatch(operator, error))
    }

    /// Records the way taken at this step, and returns it; if the run is recorded and continued, the way that was taken
    /// then.
    ///
    /// # Errors
    ///
    /// [`OperatorError::SubDispatch`], with what the orchestrator answered inside.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the way is noted or not.
    pub async fn route(&self, to: impl Into<String> + Send) -> Result<String, OperatorError> {
        let to = to.into();
        let Some(orchestrator) = &self.orchestrator else { return Ok(to) };
        let routed = orchestrator.route(to.clone(), self.below()).await;
        routed.map_err(|error| OperatorError::sub_dispatch(to, error))
    }

    /// States that the operator's code does work of its own until the guard is dropped: it waits for a timer or another
    /// service, or computes. An operator is not suspended during such work, even if all runs below it wait.
    ///
    /// ```
    /// use layer0::operator::Context;
    ///
    /// # async fn poll_the_service() {}
    /// # async fn example(context: &Context) {
    /// let busy = context.busy();
    /// poll_the_service().await;
    /// drop(busy);
    /// # }
    /// ```
    pub fn busy(&self) -> BusyGuard {
        BusyGuard::new(self.own_work.clone())
    }

    /// Makes the context of an operator that this one calls: one level deeper, in the same session, until
    /// the same time.
    #[must_use]
    pub fn below(&self) -> Self {
        Self {
            session: self.session.clone(),
            sessions: Arc::clone(&self.sessions),
            parent: self.run.clone(),
            root: self.root.clone().or_else(|| self.run.clone()),
            depth: self.depth.saturating_add(1),
            deadline: self.deadline,
            max_park: self.max_park,
            orchestrator: self.orchestrator.clone(),
            step: self.step.clone(),
            scope: self.scope.clone(),
            shares: self.shares,
            labels: Arc::clone(&self.labels),
            ..Self::root()
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("session", &self.session)
            .field("parent", &self.parent)
            .field("depth", &self.depth)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
