//! The port of a log that lists runs.

use async_trait::async_trait;
use layer0::id::SessionId;

use crate::{AttemptFilter, FailedAttempts, LogError, RunFilter, RunSummary};

/// Lists runs.
#[async_trait]
pub trait Runs: Send + Sync {
    /// Lists runs, the one that started last first; segments of subscriptions only if the filter asks for them, and
    /// then only these.
    ///
    /// # Errors
    ///
    /// As [`Log::summary`](crate::Log::summary).
    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunSummary>, LogError>;

    /// Returns the root run that started last in a session, without branches. Costs the same however many runs there
    /// are.
    ///
    /// # Errors
    ///
    /// As [`Log::summary`](crate::Log::summary).
    async fn last_root(&self, session: &SessionId) -> Result<Option<RunSummary>, LogError>;

    /// Counts the failed model attempts by day, provider and code, in this order; `None` from a log that has no faster way
    /// than to read every record.
    ///
    /// # Errors
    ///
    /// As [`Log::summary`](crate::Log::summary).
    async fn failed_attempts(
        &self,
        filter: &AttemptFilter,
    ) -> Result<Option<Vec<FailedAttempts>>, LogError> {
        let _ = filter;
        Ok(None)
    }
}
