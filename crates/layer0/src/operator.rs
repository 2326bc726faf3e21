//! The protocol of something that can be dispatched.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::Value;

use crate::error::OperatorError;
use crate::id::{RunId, SessionId};
use crate::message::Image;
use crate::orchestrator::Orchestrator;
use crate::stop::Stop;
use crate::time::Timestamp;
use crate::usage::Usage;

/// Does one piece of work for a caller that names it.
#[async_trait]
pub trait Operator: Send + Sync {
    /// Returns the name it is dispatched by.
    fn name(&self) -> &str;

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

/// What an operator is asked to do.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Task {
    /// The input: text for a model, any JSON for code.
    pub input: Value,
    /// The images of the input.
    pub images: Arc<[Image]>,
    /// May the same task be dispatched again after it may have acted?
    pub idempotent: bool,
}

impl Task {
    /// Makes a task from text; it is not idempotent.
    pub fn text(input: impl Into<String>) -> Self {
        Self::json(Value::String(input.into()))
    }

    /// Makes a task from JSON; it is not idempotent.
    #[must_use]
    pub fn json(input: Value) -> Self {
        Self { input, images: Arc::default(), idempotent: false }
    }

    /// Shows images with the input.
    #[must_use]
    pub fn images(mut self, images: impl Into<Arc<[Image]>>) -> Self {
        self.images = images.into();
        self
    }

    /// States that dispatching the task again does no harm.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }
}

/// What an operator answers.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// The answer: text from a model, any JSON from code.
    pub output: Value,
    /// How it ended.
    pub stop: Stop,
    /// The run it recorded, where it records one.
    pub run: Option<RunId>,
    /// What it used.
    pub usage: Usage,
}

impl Answer {
    /// Makes a completed answer that recorded no run and used nothing.
    #[must_use]
    pub fn completed(output: Value) -> Self {
        Self { output, stop: Stop::Completed, run: None, usage: Usage::default() }
    }
}

/// Where an operator runs: its session, its depth, who called it and who it may call.
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
    /// The run that dispatched this operator.
    pub parent: Option<RunId>,
    /// How many dispatches are above this one.
    pub depth: u32,
    /// When the work has to be done.
    pub deadline: Option<Timestamp>,
    /// Who to dispatch through; `None` outside an orchestrator.
    pub orchestrator: Option<Arc<dyn Orchestrator>>,
    /// What was sent to this dispatch while it runs.
    pub signals: Signals,
}

impl Context {
    /// Makes the context of a first dispatch, outside an orchestrator.
    #[must_use]
    pub fn root() -> Self {
        Self {
            session: None,
            parent: None,
            depth: 0,
            deadline: None,
            orchestrator: None,
            signals: Signals::default(),
        }
    }

    /// Calls another operator one level deeper, in the same session.
    ///
    /// # Errors
    ///
    /// [`OperatorError::SubDispatch`], with what the orchestrator answered inside.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the sub-dispatch.
    pub async fn dispatch(&self, operator: &str, task: Task) -> Result<Answer, OperatorError> {
        let Some(orchestrator) = &self.orchestrator else {
            return Err(OperatorError::cannot_dispatch(operator, "there is no orchestrator"));
        };
        let inner = Self { depth: self.depth + 1, signals: Signals::default(), ..self.clone() };
        orchestrator
            .dispatch(operator, task, inner)
            .await
            .map_err(|error| OperatorError::sub_dispatch(operator, error))
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

/// A message to a dispatch in flight.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Signal {
    /// What it is about.
    pub name: String,
    /// What it carries.
    pub data: Value,
}

impl Signal {
    /// Makes a message about something.
    #[must_use]
    pub fn new(name: impl Into<String>, data: Value) -> Self {
        Self { name: name.into(), data }
    }
}

/// The signals that wait for an operator to take them; clones share one queue.
#[derive(Debug, Clone, Default)]
pub struct Signals(Arc<Mutex<VecDeque<Signal>>>);

impl Signals {
    /// Puts a signal at the end.
    pub fn push(&self, signal: Signal) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(signal);
    }

    /// Returns how many signals wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Takes the oldest signal.
    #[must_use]
    pub fn take(&self) -> Option<Signal> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}
