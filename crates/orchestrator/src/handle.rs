use std::sync::{Arc, Weak};

use async_trait::async_trait;
use layer0::error::OrchError;
use layer0::id::WorkflowId;
use layer0::operator::{Answer, Context, Signal, Task};
use layer0::orchestrator::UnknownOperator;
use layer0::{Operator, Orchestrator};
use serde_json::Value;

use crate::inner::Inner;
use crate::local::LocalOrchestrator;

/// What an operator dispatches through.
pub(crate) struct Handle(Weak<Inner>);

impl Handle {
    pub(crate) const fn new(inner: Weak<Inner>) -> Self {
        Self(inner)
    }

    fn orchestrator(&self) -> Result<LocalOrchestrator, OrchError> {
        let gone = || OrchError::Shutdown("it was dropped".to_owned());
        self.0.upgrade().map(|inner| LocalOrchestrator { inner }).ok_or_else(gone)
    }
}

#[async_trait]
impl Orchestrator for Handle {
    async fn dispatch(
        &self,
        operator: &str,
        task: Task,
        context: Context,
    ) -> Result<Answer, OrchError> {
        self.orchestrator()?.dispatch(operator, task, context).await
    }

    async fn dispatch_many(
        &self,
        tasks: Vec<(String, Task)>,
        context: Context,
    ) -> Vec<Result<Answer, OrchError>> {
        match self.orchestrator() {
            Ok(orchestrator) => orchestrator.dispatch_many(tasks, context).await,
            Err(error) => {
                let why = error.to_string();
                tasks.iter().map(|_| Err(OrchError::Shutdown(why.clone()))).collect()
            }
        }
    }

    async fn perform(
        &self,
        operator: Arc<dyn Operator>,
        task: Task,
        context: Context,
    ) -> Result<Answer, OrchError> {
        self.orchestrator()?.perform(operator, task, context).await
    }

    fn unknown(&self, operator: &str) -> Option<UnknownOperator> {
        self.orchestrator().ok()?.unknown(operator)
    }

    fn is_priced(&self, operator: &str) -> bool {
        self.orchestrator().is_ok_and(|orchestrator| orchestrator.is_priced(operator))
    }

    fn can_go_on(&self, operator: &str) -> bool {
        self.orchestrator().is_ok_and(|orchestrator| orchestrator.can_go_on(operator))
    }

    async fn signal(&self, workflow: &WorkflowId, signal: Signal) -> Result<(), OrchError> {
        self.orchestrator()?.signal(workflow, signal).await
    }

    async fn query(&self, workflow: &WorkflowId) -> Result<Value, OrchError> {
        self.orchestrator()?.query(workflow).await
    }
}
