//! The protocol of operators, which can be dispatched.

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

/// Performs one piece of work for a caller, which dispatches it by name.
#[async_trait]
pub trait Operator: Send + Sync {
    /// Returns the name by which it is dispatched.
    fn name(&self) -> &str;

    /// Returns the JSON Schema of its input, if it declares one.
    fn input_schema(&self) -> Option<&Value> {
        None
    }

    /// Returns the JSON Schema of its answer, if it declares one.
    fn output_schema(&self) -> Option<&Value> {
        None
    }

    /// Returns the names of the operators that it dispatches, as far as they are known in advance. An orchestrator
    /// without one of them cannot be built.
    fn calls(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Returns whether the cost of its runs will be known. An operator without a price is not dispatched below a run
    /// with a cost budget.
    fn is_priced(&self) -> bool {
        true
    }

    /// Returns whether it keeps a record, so that a failed run can continue without repeating work. Such an operator
    /// names the run in its answer, and enforces its context's deadline itself: it ends within five seconds, and does
    /// not complete work that begins after the deadline. Any other operator is dropped at its deadline; its child runs
    /// still count for its caller.
    fn can_go_on(&self) -> bool {
        false
    }

    /// Returns the digest of its definition, if it keeps a record: its runs are continued by an operator with the same
    /// digest. The same at every call.
    fn digest(&self) -> Option<Arc<str>> {
        None
    }

    /// Returns the program that does the same work in a separate process, if there is one: only a program can run in an
    /// [`Environment`](crate::Environment) with walls.
    fn program(&self) -> Option<OperatorProgram> {
        None
    }

    /// Performs the work. A task that is [cancelled](Signal::cancel) ends within five seconds; then its orchestrator
    /// drops it.
    ///
    /// # Errors
    ///
    /// Any variant of [`OperatorError`]; its facts determine whether the orchestrator tries again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the work, also that of tasks which it has spawned; the events recorded until then
    /// remain.
    async fn run(&self, task: Task, context: &Context) -> Result<Answer, OperatorError>;
}

/// A task for an operator. In JSON, `max_park_ms` is in milliseconds, and fields equal to those of [`Task::json`] are
/// omitted.
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
    /// JSON Schema that the answer has to fit; an agent receives it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub output_schema: Option<Value>,
    /// Whether the operator receives the earlier messages of the session.
    #[serde(default, skip_serializing_if = "is_default")]
    pub history: bool,
    /// The maximum that it may use of its caller's budget; as much as the caller can give by default.
    #[serde(default, skip_serializing_if = "is_default")]
    pub allowance: Option<Allowance>,
    /// The longest time for which an endpoint may ask for a wait without a failure: the work is parked, and
    /// continues afterwards. The orchestrator's default if `None`.
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
    /// Creates a task from text; it is not idempotent.
    pub fn text(input: impl Into<String>) -> Self {
        Self::json(Value::String(input.into()))
    }

    /// Creates a task from JSON; it is not idempotent.
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

    /// Adds images to the input.
    #[must_use]
    pub fn images(mut self, images: impl Into<Arc<[Image]>>) -> Self {
        self.images = images.into();
        self
    }

    /// Requires an answer that fits a JSON Schema.
    #[must_use]
    pub fn output_schema(mut self, schema: Value) -> Self {
        self.output_schema = Some(schema);
        self
    }

    /// Gives the operator the earlier messages of the session.
    #[must_use]
    pub const fn with_history(mut self) -> Self {
        self.history = true;
        self
    }

    /// Limits the part of the caller's budget that the operator may use.
    #[must_use]
    pub const fn allowance(mut self, allowance: Allowance) -> Self {
        self.allowance = Some(allowance);
        self
    }

    /// Sets the longest time for which the work may be parked when an endpoint asks for a wait, instead of
    /// failing.
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

    /// Declares that the task may be dispatched again.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }
}

/// The answer of an operator.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// The output: text from a model, any JSON from code.
    pub output: Value,
    /// The end of the work.
    pub stop: Stop,
    /// The recorded run, if the operator records one.
    pub run: Option<RunId>,
    /// The usage, including child runs.
    pub usage: Usage,
    /// The time at which parked work continues by itself; until then its stop is [`Stop::WaitingApproval`].
    pub parked_until: Option<Timestamp>,
}

impl Answer {
    /// Creates a completed answer without a recorded run and without usage.
    #[must_use]
    pub fn from_output(output: Value) -> Self {
        Self {
            output,
            stop: Stop::Completed,
            run: None,
            usage: Usage::default(),
            parked_until: None,
        }
    }
}

/// The context of an operator: its session, its depth, its caller and the operators that it may dispatch.
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
    /// The session; child runs share their caller's.
    pub session: Option<SessionId>,
    /// Other sessions whose stored errors and results the work may read, because its input may refer to them.
    pub sessions: Arc<[SessionId]>,
    /// The id of the run under which the work is recorded.
    pub run: Option<RunId>,
    /// The runs of the session that are dispatched together, including this one, if they have no caller: they are open
    /// at the same time, and all except the first to begin are branches of the session's transcript.
    pub together: Arc<[RunId]>,
    /// The run that dispatched this operator.
    pub parent: Option<RunId>,
    /// The first run in the chain of its callers.
    pub root: Option<RunId>,
    /// The number of the attempt at the run: 1, 2, …. From the second one on, a failed run continues from its end.
    pub attempt: u32,
    /// Whether a record of the run may exist. An operator that keeps records continues it: an open run is resumed, an
    /// ended run is answered from its record.
    pub goes_on: bool,
    /// Whether a record of the run exists already. If it is missing, that is a failure, and the run is not started
    /// again.
    pub is_recorded: bool,
    /// Whether the run and its child runs may adopt the current definitions of their operators. An operator that keeps
    /// a record records its definition there.
    pub adopts: bool,
    /// Whether the run and its child runs may continue although acknowledged events are missing from their records: a
    /// person has accepted the loss.
    pub accepts_lost_tail: bool,
    /// The number of dispatches above this one.
    pub depth: u32,
    /// The deadline of the work.
    pub deadline: Option<Timestamp>,
    /// The part of its caller's budget that it may use; `None` without a bound.
    pub allowance: Option<Allowance>,
    /// The longest time for which an endpoint may ask for a wait without a failure: the work is parked, and
    /// continues afterwards. Nothing is parked if `None`.
    pub max_park: Option<Duration>,
    /// The orchestrator for dispatches; `None` outside of one.
    pub orchestrator: Option<Arc<dyn Orchestrator>>,
    /// The signals sent to this dispatch while it runs.
    pub signals: Signals,
    /// The receiver of reports on the work.
    pub caller: Option<Arc<dyn Caller>>,
    /// The receiver of reports on the operator's own work; `None` if there is none.
    pub own_work: Option<Arc<dyn OwnWork>>,
    /// The workflow step that is dispatched next; numbered from 1 if it has no name.
    pub step: Option<Arc<str>>,
    /// The part of a workflow that numbers its steps separately.
    pub scope: Option<Arc<str>>,
    /// The number of dispatches that share the rest of the caller's budget, including the next one; 2 if it is not
    /// known.
    pub shares: Option<u32>,
    /// The delivery to a behaviour that led to the work, if any.
    pub cause: Option<Cause>,
    /// The labels of the first run in the chain of its callers; child runs inherit them.
    pub labels: Arc<BTreeMap<String, String>>,
}

/// The caller of an operator, for reports during the work.
#[async_trait]
pub trait Caller: Send + Sync {
    /// Reports the usage so far.
    fn report_usage(&self, usage: Usage);

    /// Reports that the work can only wait. Returns when the operator has to be suspended: it then answers with
    /// [`Stop::WaitingApproval`], and is resumed later.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future reports that the work continues.
    async fn wait(&self, waiting: Waiting);

    /// Requests more of the caller's budget, after `given` earlier grants. Returns `None` if nothing is left.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes nothing; a grant that was made is made again on the next request.
    async fn more(&self, given: u32) -> Option<Allowance>;

    /// Reports that the operator is about to be tried again.
    ///
    /// # Errors
    ///
    /// [`OrchError::DispatchFailed`] if the caller is gone.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the attempt may or may not have been recorded.
    async fn retry(&self, attempt: u32) -> Result<(), OrchError>;

    /// Waits until child runs may begin to act on the world; forever, once another process has the caller's run.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn until_may_act(&self) {}

    /// Waits until child runs that act on the world have to stop: another process has the caller's run, or may soon
    /// have it.
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
    /// Reports the start of a piece of work.
    fn begin(&self);

    /// Reports the end of a piece of work.
    fn end(&self);
}

/// Guard of a piece of an operator's own work; created by [`Context::busy`].
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
    /// The open approvals of the work and its child runs.
    pub approvals: Vec<ApprovalId>,
    /// The time at which parked work continues by itself.
    #[serde(default)]
    pub until: Option<Timestamp>,
    /// The reason for which it is parked, if it is.
    #[serde(default)]
    pub reason: Option<Code>,
    /// Whether something would be lost if the work were suspended: a question to a person in this process, or code that
    /// cannot be resumed. If so, no caller is suspended either.
    #[serde(default)]
    pub stays: bool,
}

impl Waiting {
    /// Creates a wait.
    #[must_use]
    pub const fn new(r#for: WaitFor, approvals: Vec<ApprovalId>) -> Self {
        Self { r#for, approvals, until: None, reason: None, stays: false }
    }

    /// Sets whether something would be lost if the work were suspended.
    #[must_use]
    pub const fn stays(mut self, stays: bool) -> Self {
        self.stays = stays;
        self
    }
}

impl Context {
    /// Creates the context of a first dispatch, outside an orchestrator.
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

    /// Names the workflow step that is dispatched next. If the run is recorded, a finished step of this name is
    /// answered from the record when the run continues; a repeated name gets a counter: `draft`, `draft~2`.
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

    /// Opens a part of a workflow that numbers its steps separately. Concurrent lines of steps need one each, because
    /// the order of their requests differs from process to process.
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

    /// Sets the number of dispatches that share the rest of the caller's budget, including the next one.
    #[must_use]
    pub fn sharing(&self, dispatches: usize) -> Self {
        Self { shares: Some(u32::try_from(dispatches).unwrap_or(u32::MAX)), ..self.clone() }
    }

    /// Dispatches another operator one level deeper, in the same session.
    ///
    /// # Errors
    ///
    /// [`OperatorError::SubDispatch`] with the orchestrator's error inside.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the child run.
    pub async fn dispatch(&self, operator: &str, task: Task) -> Result<Answer, OperatorError> {
        let Some(orchestrator) = &self.orchestrator else {
            return Err(OperatorError::cannot_dispatch(operator, "there is no orchestrator"));
        };
        orchestrator
            .dispatch(operator, task, self.below())
            .await
            .map_err(|error| OperatorError::sub_dispatch(operator, error))
    }

    /// Records the route taken at this step, and returns it; if the run is recorded and continued, returns the route
    /// that was recorded.
    ///
    /// # Errors
    ///
    /// [`OperatorError::SubDispatch`] with the orchestrator's error inside.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the route may or may not have been recorded.
    pub async fn route(&self, to: impl Into<String> + Send) -> Result<String, OperatorError> {
        let to = to.into();
        let Some(orchestrator) = &self.orchestrator else { return Ok(to) };
        let routed = orchestrator.route(to.clone(), self.below()).await;
        routed.map_err(|error| OperatorError::sub_dispatch(to, error))
    }

    /// Returns whether the run's record has this step, because an earlier process of the run requested it. Code that
    /// waits before a step need not wait for a recorded one again.
    ///
    /// ```
    /// # async fn remind(context: &layer0::operator::Context, an_hour: impl Future<Output = ()>) {
    /// let step = context.step("remind");
    /// if !step.has_begun().await {
    ///     an_hour.await;
    /// }
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn has_begun(&self) -> bool {
        let Some(orchestrator) = &self.orchestrator else { return false };
        orchestrator.has_begun(self.below()).await
    }

    /// Reports that the operator's code does work of its own until the guard is dropped: it waits for a timer or
    /// another service, or computes. An operator is not suspended during such work, even if all its child runs wait.
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

    /// Creates the context of a child run: one level deeper, in the same session, with the same deadline.
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
