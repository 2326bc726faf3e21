//! The port of a log that can erase.

use async_trait::async_trait;
use layer0::id::RunId;

use crate::LogError;

/// Erases the payloads of events.
#[async_trait]
pub trait Erasures: Send + Sync {
    /// Erases the payload of an event, with its salt. Returns the runs that contain a copy.
    ///
    /// The hash chain can still be verified and the run traced, but not replayed, resumed or copied. An event that was
    /// already erased stays erased. Stored errors and results of the run are not changed.
    ///
    /// # Errors
    ///
    /// [`LogError::NotErasable`] for an event that does not exist or has no salt;
    /// [`LogError::KeyMissing`] for a run that is sealed with a key that the log does not have; and as
    /// [`Log::claim`](crate::Log::claim), because it needs the claim.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the event is either erased or unchanged.
    async fn erase(&self, run: &RunId, seq: u64) -> Result<Vec<RunId>, LogError>;

    /// Returns a number that changes with each erased event and each removed run of the log; `None` from a file that is
    /// too old to count them.
    ///
    /// Text from a record may be cached and used as long as the number is the same as before the read. Costs the same
    /// however large the log is.
    ///
    /// # Errors
    ///
    /// As [`Log::summary`](crate::Log::summary).
    async fn erasures(&self) -> Result<Option<u64>, LogError>;
}
