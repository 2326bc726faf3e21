//! The port of a log with a key.

use async_trait::async_trait;
use layer0::id::RunId;

use crate::{LogError, LogKey, RunSeals};

/// Keys the hash chains of runs and the log's rows of them.
#[async_trait]
pub trait Seals: Send + Sync {
    /// Returns the key that seals new runs; a log without a key does not key its chains.
    fn key(&self) -> Option<&LogKey>;

    /// Returns whether the log seals its row of each run that is sealed with its [key](Seals::key). The first event
    /// of such a run records this.
    fn seals_rows(&self) -> bool {
        false
    }

    /// Returns the HMACs of a run under the log's [key](Seals::key), or `None`.
    ///
    /// # Errors
    ///
    /// As [`Log::summary`](crate::Log::summary).
    async fn seals(&self, run: &RunId) -> Result<Option<RunSeals>, LogError> {
        let _ = run;
        Ok(None)
    }
}
