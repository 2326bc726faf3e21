//! The protocol of what dispatches operators.

use async_trait::async_trait;
use serde_json::Value;

use crate::error::OrchError;
use crate::id::WorkflowId;
use crate::operator::{Answer, Context, Signal, Task};

/// Dispatches operators by name, and talks to dispatches in flight.
#[async_trait]
pub trait Orchestrator: Send + Sync {
    /// Runs one operator and waits for its answer.
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

    /// Runs several operators at once and returns their answers in the order asked.
    ///
    /// One that fails does not stop the others.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops all of them.
    async fn dispatch_many(
        &self,
        tasks: Vec<(String, Task)>,
        context: Context,
    ) -> Vec<Result<Answer, OrchError>>;

    /// Will be known what a run of this operator costs? An operator without a price is not dispatched below a
    /// run with a cost budget.
    fn is_priced(&self, operator: &str) -> bool {
        let _ = operator;
        true
    }

    /// Can a run of this operator go on where it ended, because it keeps a record? A call that dispatches one
    /// that cannot is treated as one of any tool when its process dies.
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

    /// Asks for what is known of a dispatch in flight: operator, depth and start.
    ///
    /// # Errors
    ///
    /// [`OrchError::WorkflowNotFound`].
    async fn query(&self, workflow: &WorkflowId) -> Result<Value, OrchError>;
}
