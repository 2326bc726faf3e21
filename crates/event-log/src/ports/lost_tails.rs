//! The port of a log that notices lost events.

use async_trait::async_trait;
use layer0::event::LostTail;
use layer0::id::RunId;

use crate::{Claim, LogError, LostRun};

/// Notices that a record has lost its newest events, for example after a restore of an older backup.
#[async_trait]
pub trait LostTails: Send + Sync {
    /// Claims a recorded run as [`Log::claim`](crate::Log::claim) does, also one whose record has lost its tail, and returns the
    /// newest event known to be lost. Other claims are refused until an append accepts the loss.
    ///
    /// # Errors
    ///
    /// As [`Log::claim`](crate::Log::claim), except [`LogError::LostTail`].
    ///
    /// # Cancel safety
    ///
    /// As [`Log::claim`](crate::Log::claim).
    async fn claim_with_loss(&self, run: &RunId) -> Result<(Claim, Option<LostTail>), LogError>;

    /// Lists the runs that are refused because their records have lost their tails, by run.
    ///
    /// # Errors
    ///
    /// As [`Log::summary`](crate::Log::summary).
    async fn lost_tails(&self) -> Result<Vec<LostRun>, LogError>;
}
