//! Orchestrator of a workflow's code: each dispatch is a step of its record.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use layer0::error::OrchError;
use layer0::id::WorkflowId;
use layer0::operator::{Answer, Context, Signal, Task};
use layer0::orchestrator::UnknownOperator;
use layer0::{Operator, Orchestrator};
use serde_json::Value;

use super::line::{RunChannel, RunMessage, StepAsk, StepName, StepTarget};
use crate::many::one_of_many;

pub(super) struct StepOrchestrator {
    pub(super) orchestrator: Arc<dyn Orchestrator>,
    pub(super) line: RunChannel,
}

impl StepOrchestrator {
    async fn step(
        &self,
        target: StepTarget,
        task: Task,
        context: Context,
    ) -> Result<Answer, OrchError> {
        let (name, shares) = (StepName::new(&context), context.shares);
        let asked = self.line.ask(|answer| {
            RunMessage::Step(Box::new(StepAsk { name, target, task, shares, answer }))
        });
        asked.await.unwrap_or_else(|| Err(OrchError::Shutdown("the workflow is over".to_owned())))
    }
}

/// Returns whether a child run dispatches, with the orchestrator that it has from the workflow. It keeps its own
/// record.
fn is_of_another(context: &Context) -> bool {
    context.caller.is_some()
}

#[async_trait]
impl Orchestrator for StepOrchestrator {
    async fn dispatch(
        &self,
        operator: &str,
        task: Task,
        context: Context,
    ) -> Result<Answer, OrchError> {
        match is_of_another(&context) {
            true => self.orchestrator.dispatch(operator, task, context).await,
            false => self.step(StepTarget::Named(operator.into()), task, context).await,
        }
    }

    async fn dispatch_many(
        &self,
        tasks: Vec<(String, Task)>,
        context: Context,
    ) -> Vec<Result<Answer, OrchError>> {
        if is_of_another(&context) {
            return self.orchestrator.dispatch_many(tasks, context).await;
        }
        let count = tasks.len();
        // The steps are requested in this order.
        let steps = tasks.into_iter().enumerate().map(|(place, (operator, task))| {
            let context = one_of_many(&context).sharing(count - place);
            self.step(StepTarget::Named(operator.into()), task, context)
        });
        join_all(steps).await
    }

    async fn perform(
        &self,
        operator: Arc<dyn Operator>,
        task: Task,
        context: Context,
    ) -> Result<Answer, OrchError> {
        match is_of_another(&context) {
            true => self.orchestrator.perform(operator, task, context).await,
            false => self.step(StepTarget::AtHand(operator), task, context).await,
        }
    }

    async fn route(&self, to: String, context: Context) -> Result<String, OrchError> {
        let step = StepName::new(&context);
        let asked = self.line.ask(|answer| RunMessage::Route { step, to, answer });
        asked.await.unwrap_or_else(|| Err(OrchError::Shutdown("the workflow is over".to_owned())))
    }

    async fn has_begun(&self, context: Context) -> bool {
        let step = StepName::new(&context);
        self.line.ask(|answer| RunMessage::HasBegun { step, answer }).await.unwrap_or(false)
    }

    fn unknown(&self, operator: &str) -> Option<UnknownOperator> {
        self.orchestrator.unknown(operator)
    }

    fn is_priced(&self, operator: &str) -> bool {
        self.orchestrator.is_priced(operator)
    }

    fn can_go_on(&self, operator: &str) -> bool {
        self.orchestrator.can_go_on(operator)
    }

    async fn signal(&self, workflow: &WorkflowId, signal: Signal) -> Result<(), OrchError> {
        self.orchestrator.signal(workflow, signal).await
    }

    async fn query(&self, workflow: &WorkflowId) -> Result<Value, OrchError> {
        self.orchestrator.query(workflow).await
    }
}
