//! Operators that dispatch other operators, with a record of their steps.

mod begin;
mod diverged;
mod fan_out;
mod halt;
mod ledger;
mod line;
mod map;
mod parallel;
mod episode;
mod progress;
mod recorded;
mod replay;
mod route;
mod sequence;
mod steps;
mod supervise;
mod text;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{EventLog, text_digest};
use backstop_redact::Redactor;
use layer0::Operator;
use layer0::error::OperatorError;
use layer0::event::AgentRecord;
use layer0::operator::{Answer, Context, Task};
use serde_json::Value;

use begin::{Opened, Recorder};
use steps::StepOrchestrator;

pub use diverged::{Diverged, DivergencePoint};
pub use fan_out::OnFailure;
pub use map::Map;
pub use parallel::Parallel;
pub use replay::{WorkflowRecordError, is_workflow, replay_workflow};
pub use route::Route;
pub use sequence::Sequence;
pub use supervise::{Restart, Supervise};

/// An operator that dispatches others, with a record in which each dispatch is a step.
///
/// A step has a path, made of the workflow's name and its own name: `review/2`. Its dispatch is durable before it
/// starts, and its end before the next one begins. When the process dies, the run can be resumed
/// ([`LocalOrchestrator::resume`](crate::LocalOrchestrator::resume)): the operator's code runs from its start, a
/// finished step is answered from the record, a step that had begun continues, and no finished step runs again. So the
/// code has to request the same steps in the same way: its decisions depend only on its input and on the answers of
/// steps, and it takes any other input only through [`Context::route`].
///
/// [`Sequence`], [`Parallel`], [`Route`], [`Map`] and [`Supervise`] are such operators; your own operator dispatches
/// through its [`Context`].
///
/// ```
/// use std::sync::Arc;
///
/// use backstop_event_log::MemoryLog;
/// use backstop_orchestrator::{LocalOrchestrator, Sequence, Workflow};
/// use layer0::Orchestrator;
/// use layer0::operator::{Context, Task};
/// # use async_trait::async_trait;
/// # use layer0::Operator;
/// # use layer0::error::OperatorError;
/// # use layer0::operator::Answer;
/// # struct Append(&'static str);
/// # #[async_trait]
/// # impl Operator for Append {
/// #     fn name(&self) -> &str { self.0 }
/// #     async fn run(&self, task: Task, _: &Context) -> Result<Answer, OperatorError> {
/// #         let text = task.input.as_str().unwrap_or_default();
/// #         Ok(Answer::from_output(format!("{text}, {}", self.0).into()))
/// #     }
/// # }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let log = Arc::new(MemoryLog::new());
/// let review = Sequence::new("review", ["draft", "check"]);
/// let orchestrator = LocalOrchestrator::builder()
///     .operator(Append("draft"))
///     .operator(Append("check"))
///     .operator(Workflow::new(review, log.clone()))
///     .shared_log(log)
///     .build()?;
/// let answer = orchestrator.dispatch("review", Task::text("a topic"), Context::root()).await?;
/// assert_eq!(answer.output, "a topic, draft, check");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Workflow {
    operator: Arc<dyn Operator>,
    recorder: Recorder,
}

impl Workflow {
    /// Wraps an operator whose steps are recorded in a log.
    pub fn new(operator: impl Operator + 'static, log: Arc<dyn EventLog>) -> Self {
        Self::from_arc(Arc::new(operator), log)
    }

    /// Wraps a shared operator whose steps are recorded in a log.
    pub fn from_arc(operator: Arc<dyn Operator>, log: Arc<dyn EventLog>) -> Self {
        let definition = AgentRecord::workflow(&operator.calls(), operator.name());
        let digest = text_digest(definition.get());
        let record = AgentRecord::new(operator.name(), digest, definition);
        let (clock, redactor) = (Arc::new(SystemClock), Redactor::new());
        Self { operator, recorder: Recorder { log, clock, redactor, record } }
    }

    /// Sets the clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.recorder.clock = clock;
        self
    }

    /// Sets the redactor that removes secrets from the record.
    #[must_use]
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.recorder.redactor = redactor;
        self
    }
}

/// The answer of a workflow is text, an object or a list: any other value becomes text, and text that is an object or a
/// list in JSON becomes that value, so that a recorded answer equals the original one.
#[async_trait]
impl Operator for Workflow {
    fn name(&self) -> &str {
        self.operator.name()
    }

    fn input_schema(&self) -> Option<&Value> {
        self.operator.input_schema()
    }

    fn output_schema(&self) -> Option<&Value> {
        self.operator.output_schema()
    }

    fn calls(&self) -> Vec<&str> {
        self.operator.calls()
    }

    fn is_priced(&self) -> bool {
        self.operator.is_priced()
    }

    fn can_go_on(&self) -> bool {
        true
    }

    fn digest(&self) -> Option<Arc<str>> {
        Some(Arc::clone(&self.recorder.record.digest))
    }

    async fn run(&self, task: Task, context: &Context) -> Result<Answer, OperatorError> {
        let (episode, task) = match Box::pin(self.recorder.open(&task, context)).await? {
            Opened::Ended(result) => return result,
            Opened::AtWork(episode, task) => (episode, task),
        };
        let own = episode.context(context);
        Box::pin(episode.perform(&*self.operator, task, own)).await
    }
}

impl episode::Episode {
    /// Returns the context of the workflow's own code, whose dispatches are steps.
    fn context(&self, context: &Context) -> Context {
        let mut own = context.clone();
        (own.run, own.session) = (Some(self.run.clone()), Some(self.session.clone()));
        (own.root, own.depth) = (Some(self.root.clone()), self.depth);
        own.signals = self.own_signals.clone();
        // Its dispatches are known by their steps.
        (own.caller, own.allowance, own.step, own.shares) = (None, None, None, None);
        own.own_work = Some(Arc::clone(&self.books) as _);
        own.orchestrator = self.orchestrator.clone().map(|orchestrator| {
            Arc::new(StepOrchestrator { orchestrator, line: self.line.clone() }) as _
        });
        own
    }
}

impl fmt::Debug for Workflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workflow").field("name", &self.name()).finish_non_exhaustive()
    }
}
