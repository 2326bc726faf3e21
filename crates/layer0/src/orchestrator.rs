//! The protocol of orchestrators, which dispatch operators.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use thiserror::Error;

use crate::code;
use crate::error::OrchError;
use crate::failure::{Effect, Facts, Failure};
use crate::id::WorkflowId;
use crate::operator::Operator;
use crate::operator::{Answer, Context, Signal, Task};

/// Dispatches operators by name, and communicates with dispatches in flight.
#[async_trait]
pub trait Orchestrator: Send + Sync {
    /// Runs an operator and waits for its answer.
    ///
    /// # Errors
    ///
    /// [`OrchError::OperatorNotFound`], [`OrchError::DispatchFailed`],
    /// [`OrchError::OperatorError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the operator.
    async fn dispatch(
        &self,
        operator: &str,
        task: Task,
        context: Context,
    ) -> Result<Answer, OrchError>;

    /// Runs several operators concurrently, and returns their answers in the order of the tasks.
    ///
    /// A failure of one does not stop the others.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops all of them.
    async fn dispatch_many(
        &self,
        tasks: Vec<(String, Task)>,
        context: Context,
    ) -> Vec<Result<Answer, OrchError>>;

    /// Runs an operator that the caller holds, as if it were registered: with the same retries, ownership and limits.
    /// It dispatches through the context's orchestrator. An orchestrator that runs operators elsewhere finds it by its
    /// name.
    ///
    /// # Errors
    ///
    /// As [`Orchestrator::dispatch`].
    ///
    /// # Cancel safety
    ///
    /// As [`Orchestrator::dispatch`].
    async fn perform(
        &self,
        operator: Arc<dyn Operator>,
        task: Task,
        context: Context,
    ) -> Result<Answer, OrchError> {
        self.dispatch(operator.name(), task, context).await
    }

    /// Records the route that a workflow takes at the context's step, and returns it; if its run is continued, returns
    /// the route that was recorded. Without a record, that is `to`.
    ///
    /// # Errors
    ///
    /// [`OrchError::Shutdown`] if the workflow is over, or its record cannot be written.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the route may or may not have been recorded.
    async fn route(&self, to: String, context: Context) -> Result<String, OrchError> {
        drop(context);
        Ok(to)
    }

    /// Returns whether a workflow's record has the context's step: an earlier process of its run requested it. Without a
    /// record, `false`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn has_begun(&self, context: Context) -> bool {
        drop(context);
        false
    }

    /// Returns an error, before a dispatch, if there is no operator of this name; `None` if there is one, or if that is
    /// not known in advance.
    fn unknown(&self, operator: &str) -> Option<UnknownOperator> {
        let _ = operator;
        None
    }

    /// Returns whether the cost of a run of this operator will be known. An operator without a price is not dispatched
    /// below a run with a cost budget.
    fn is_priced(&self, operator: &str) -> bool {
        let _ = operator;
        true
    }

    /// Returns whether a run of this operator can continue from its end, because it keeps a record. A tool call that
    /// dispatches an operator that cannot is treated like any other call when its process dies.
    fn can_go_on(&self, operator: &str) -> bool {
        let _ = operator;
        false
    }

    /// Sends a signal to a dispatch in flight.
    ///
    /// # Errors
    ///
    /// [`OrchError::WorkflowNotFound`], [`OrchError::SignalFailed`].
    async fn signal(&self, workflow: &WorkflowId, signal: Signal) -> Result<(), OrchError>;

    /// Returns the known state of a dispatch in flight: operator, depth and start.
    ///
    /// # Errors
    ///
    /// [`OrchError::WorkflowNotFound`].
    async fn query(&self, workflow: &WorkflowId) -> Result<Value, OrchError>;
}

/// The error of a name under which no operator is registered, with the most similar name.
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no operator named `{name}`")]
#[non_exhaustive]
pub struct UnknownOperator {
    /// The requested name.
    pub name: Box<str>,
    /// The name of the most similar operator.
    pub nearest: Option<Box<str>>,
}

impl UnknownOperator {
    /// Creates the error for a requested name, with the most similar one.
    pub fn new(name: impl Into<Box<str>>, nearest: Option<&str>) -> Self {
        Self { name: name.into(), nearest: nearest.map(Into::into) }
    }
}

impl Failure for UnknownOperator {
    fn facts(&self) -> Facts {
        Facts::never(code::ORCH_OPERATOR_NOT_FOUND, Effect::None)
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(match &self.nearest {
            Some(nearest) => format!("did you mean `{nearest}`?").into(),
            None => "register an operator of this name, or dispatch one that is".into(),
        })
    }
}
