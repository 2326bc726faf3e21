use async_trait::async_trait;
use sqlx::SqliteConnection;

use crate::job_error::JobError;

/// Internal work of the store, which the writer does in a transaction that other jobs may share. It must be short:
/// every job of the same commit waits for it.
#[async_trait]
pub(crate) trait Chore: Send + Sync {
    /// Does the work, and returns the amount. It may be repeated if the transaction failed.
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError>;
}
