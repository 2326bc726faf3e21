//! Messages to a workflow's run from its own code and from its child runs.

use backstop_event_log::Lease;
use std::sync::Arc;

use async_trait::async_trait;
use layer0::Operator;
use layer0::error::OrchError;
use layer0::id::RunId;
use layer0::operator::{Answer, Caller, Context, Task, Waiting};
use layer0::usage::{Allowance, Usage};
use tokio::sync::{mpsc, oneshot};

use crate::books::callers::ChildCaller;

/// A request to the run, or a report.
pub(super) enum RunMessage {
    /// Request for the next step.
    Step(Box<StepAsk>),
    /// Request to take a route, unless another one is recorded.
    Route { step: StepName, to: String, answer: oneshot::Sender<Result<String, OrchError>> },
    /// Question whether the record has the next step of this name.
    HasBegun { step: StepName, answer: oneshot::Sender<bool> },
    /// Report that a child run is about to be tried again.
    Retry { run: RunId, attempt: u32, noted: oneshot::Sender<()> },
    /// Report that a child run can only wait.
    Wait { run: RunId, waiting: Waiting, noted: oneshot::Sender<()> },
    /// Request of a child run for more budget, which it was given `given` times before.
    More { run: RunId, given: u32, answer: oneshot::Sender<Option<Allowance>> },
    /// Report that all child runs only wait.
    AllWait { waiting: Waiting, noted: oneshot::Sender<()> },
    /// Report that the run itself was given more budget.
    Granted { more: Option<Allowance>, noted: oneshot::Sender<()> },
}

/// The name of a step in the code that requests it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct StepName {
    /// The part of the workflow that numbers its steps separately.
    pub(super) scope: Option<Arc<str>>,
    /// `None` for a step that is only numbered.
    pub(super) name: Option<Arc<str>>,
}

impl StepName {
    pub(super) fn new(context: &Context) -> Self {
        Self { scope: context.scope.clone(), name: context.step.clone() }
    }

    /// Returns whether it contains `~`, the separator of the counter.
    pub(super) fn holds_count(&self) -> bool {
        let holds = |text: &Option<Arc<str>>| text.as_deref().is_some_and(|it| it.contains('~'));
        holds(&self.name) || holds(&self.scope)
    }
}

/// A request for a step.
pub(super) struct StepAsk {
    pub(super) name: StepName,
    pub(super) target: StepTarget,
    pub(super) task: Task,
    /// Number of steps that are to share the rest of the budget, including this one.
    pub(super) shares: Option<u32>,
    pub(super) answer: oneshot::Sender<Result<Answer, OrchError>>,
}

/// The operator of a step.
#[derive(Clone)]
pub(super) enum StepTarget {
    Named(Arc<str>),
    AtHand(Arc<dyn Operator>),
}

impl StepTarget {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Named(name) => name,
            Self::AtHand(operator) => operator.name(),
        }
    }
}

/// Channel to the run.
#[derive(Clone)]
pub(super) struct RunChannel(mpsc::UnboundedSender<RunMessage>);

impl RunChannel {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<RunMessage>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// Sends a request and waits for its answer; `None` once the run is over.
    pub(super) async fn ask<T>(
        &self,
        ask: impl FnOnce(oneshot::Sender<T>) -> RunMessage,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.0.send(ask(answer)).ok()?;
        answered.await.ok()
    }
}

/// The caller of a step.
pub(super) struct StepCaller {
    pub(super) below: ChildCaller,
    pub(super) line: RunChannel,
    /// The lease of the workflow's run.
    pub(super) lease: Option<Arc<dyn Lease>>,
}

#[async_trait]
impl Caller for StepCaller {
    fn report_usage(&self, usage: Usage) {
        self.below.report_usage(usage);
    }

    async fn wait(&self, waiting: Waiting) {
        let (run, told) = (self.below.run.clone(), waiting.clone());
        match self.line.ask(|noted| RunMessage::Wait { run, waiting: told, noted }).await {
            Some(()) => self.below.wait(waiting).await,
            // The workflow's run is over; it has cancelled this one.
            None => std::future::pending().await,
        }
    }

    async fn more(&self, given: u32) -> Option<Allowance> {
        let run = self.below.run.clone();
        self.line.ask(|answer| RunMessage::More { run, given, answer }).await.flatten()
    }

    async fn retry(&self, attempt: u32) -> Result<(), OrchError> {
        let run = self.below.run.clone();
        let noted = self.line.ask(|noted| RunMessage::Retry { run, attempt, noted }).await;
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

/// The caller of the workflow; its grants are recorded in the workflow's record.
pub(super) struct Above {
    pub(super) caller: Arc<dyn Caller>,
    pub(super) line: RunChannel,
}

#[async_trait]
impl Caller for Above {
    fn report_usage(&self, usage: Usage) {
        self.caller.report_usage(usage);
    }

    async fn wait(&self, waiting: Waiting) {
        self.caller.wait(waiting).await;
    }

    async fn more(&self, given: u32) -> Option<Allowance> {
        let more = self.caller.more(given).await;
        self.line.ask(|noted| RunMessage::Granted { more, noted }).await?;
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
