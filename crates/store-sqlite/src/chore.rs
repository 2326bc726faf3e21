use async_trait::async_trait;
use sqlx::SqliteConnection;

use crate::job_error::JobError;

/// Work of the store's own, done by the writer inside a transaction that others may share. It is
/// short: every job of the same commit waits for it.
#[async_trait]
pub(crate) trait Chore: Send + Sync {
    /// Does the work, and says how much of it there was. It may be done again when the transaction
    /// failed.
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError>;
}
