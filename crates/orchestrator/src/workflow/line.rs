//! What is said to the run of a workflow by its own code and by those below it.

use backstop_event_log::Lease;
use std::sync::Arc;

use async_trait::async_trait;
use layer0::Operator;
use layer0::error::OrchError;
use layer0::id::RunId;
use layer0::operator::{Answer, Caller, Context, Task, Waiting};
use layer0::usage::{Allowance, Usage};
use tokio::sync::{mpsc, oneshot};

use crate::books::callers::Below;

/// Something that the run is asked for, or told.
pub(super) enum Ask {
    /// The next step is to be done.
    Step(Box<StepAsk>),
    /// This way is taken at a step, unless another one was before.
    Route { step: StepName, to: String, answer: oneshot::Sender<Result<String, OrchError>> },
    /// A run below is about to be tried again.
    Retry { run: RunId, attempt: u32, noted: oneshot::Sender<()> },
    /// A run below can do nothing but wait.
    Wait { run: RunId, waiting: Waiting, noted: oneshot::Sender<()> },
    /// A run below wants more than it was given so many times.
    More { run: RunId, given: u32, answer: oneshot::Sender<Option<Allowance>> },
    /// All below do nothing but wait.
    AllWait { waiting: Waiting, noted: oneshot::Sender<()> },
    /// The run itself was given more.
    Granted { more: Option<Allowance>, noted: oneshot::Sender<()> },
}

/// The name of a step, as the code that asks for it has it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct StepName {
    /// The part of the workflow whose steps are counted by themselves.
    pub(super) scope: Option<Arc<str>>,
    /// Absent for a step that is only counted.
    pub(super) name: Option<Arc<str>>,
}

impl StepName {
    pub(super) fn new(context: &Context) -> Self {
        Self { scope: context.scope.clone(), name: context.step.clone() }
    }

    /// Returns whether it holds what counts steps of one name apart.
    pub(super) fn holds_count(&self) -> bool {
        let holds = |text: &Option<Arc<str>>| text.as_deref().is_some_and(|it| it.contains('~'));
        holds(&self.name) || holds(&self.scope)
    }
}

/// A step that is to be done.
pub(super) struct StepAsk {
    pub(super) name: StepName,
    pub(super) target: Target,
    pub(super) task: Task,
    /// How many are to share what is left, this one included.
    pub(super) shares: Option<u32>,
    pub(super) answer: oneshot::Sender<Result<Answer, OrchError>>,
}

/// What does a step.
#[derive(Clone)]
pub(super) enum Target {
    Named(Arc<str>),
    AtHand(Arc<dyn Operator>),
}

impl Target {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Named(name) => name,
            Self::AtHand(operator) => operator.name(),
        }
    }
}

/// The way to the run.
#[derive(Clone)]
pub(super) struct Line(mpsc::UnboundedSender<Ask>);

impl Line {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Ask>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// Asks for something; `None` when the run is over.
    pub(super) async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.0.send(ask(answer)).ok()?;
        answered.await.ok()
    }
}

/// What dispatched a step, as its run sees it.
pub(super) struct StepCaller {
    pub(super) below: Below,
    pub(super) line: Line,
    /// The lease of the workflow's run.
    pub(super) lease: Option<Arc<dyn Lease>>,
}

#[async_trait]
impl Caller for StepCaller {
    fn used(&self, usage: Usage) {
        self.below.used(usage);
    }

    async fn wait(&self, waiting: Waiting) {
        let (run, told) = (self.below.run.clone(), waiting.clone());
        match self.line.ask(|noted| Ask::Wait { run, waiting: told, noted }).await {
            Some(()) => self.below.wait(waiting).await,
            // The run above is over; it has told this one to end.
            None => std::future::pending().await,
        }
    }

    async fn more(&self, given: u32) -> Option<Allowance> {
        let run = self.below.run.clone();
        self.line.ask(|answer| Ask::More { run, given, answer }).await.flatten()
    }

    async fn retry(&self, attempt: u32) -> Result<(), OrchError> {
        let run = self.below.run.clone();
        let noted = self.line.ask(|noted| Ask::Retry { run, attempt, noted }).await;
        noted.ok_or_else(|| OrchError::Shutdown("the workflow is over".to_owned()))
    }

    async fn until_may_act(&self) {
        if let Some(lease) = &self.lease {
            lease.until_may_start().await;
        }
    }

    async fn must_stop(&self) {
        match &self.lease {
            Some(lease) => lease.must_stop().await,
            None => std::future::pending().await,
        }
    }
}

/// What dispatched the workflow; what it grants is noted in the workflow's record.
pub(super) struct Above {
    pub(super) caller: Arc<dyn Caller>,
    pub(super) line: Line,
}

#[async_trait]
impl Caller for Above {
    fn used(&self, usage: Usage) {
        self.caller.used(usage);
    }

    async fn wait(&self, waiting: Waiting) {
        self.caller.wait(waiting).await;
    }

    async fn more(&self, given: u32) -> Option<Allowance> {
        let more = self.caller.more(given).await;
        self.line.ask(|noted| Ask::Granted { more, noted }).await?;
        more
    }

    async fn retry(&self, attempt: u32) -> Result<(), OrchError> {
        self.caller.retry(attempt).await
    }

    async fn until_may_act(&self) {
        self.caller.until_may_act().await;
    }

    async fn must_stop(&self) {
        self.caller.must_stop().await;
    }
}
