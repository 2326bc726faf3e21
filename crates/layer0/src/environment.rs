//! The protocol of an environment with limits.

use std::sync::Arc;

use async_trait::async_trait;

use crate::error::EnvError;
use crate::operator::{Answer, Context, Operator, Task};

/// An environment that runs operators inside limits. A limit that cannot be enforced is refused, never ignored.
#[async_trait]
pub trait Environment: Send + Sync {
    /// Runs an operator inside the environment.
    ///
    /// # Errors
    ///
    /// [`EnvError::ProvisionFailed`] before the operator starts, any other variant after.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the operator and tears the environment down.
    async fn run(
        &self,
        operator: Arc<dyn Operator>,
        task: Task,
        context: Context,
    ) -> Result<Answer, EnvError>;
}
