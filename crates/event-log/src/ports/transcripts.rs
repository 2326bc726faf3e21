//! The port of a log that keeps transcripts.

use async_trait::async_trait;
use layer0::id::RunId;

use crate::{LogError, TranscriptPart};

/// Keeps the parts of session transcripts, so that a session is read without its records.
#[async_trait]
pub trait Transcripts: Send + Sync {
    /// Returns the kept parts of a session's transcript up to a run, newest first: that of the run, of the one that it
    /// follows, and so on, up to the first that is missing or whose run has another head by now; at most a thousand.
    /// Costs one read, whatever the records hold.
    ///
    /// # Errors
    ///
    /// As [`Log::summary`](crate::Log::summary).
    async fn transcript(&self, until: &RunId) -> Result<Vec<TranscriptPart>, LogError>;

    /// Keeps parts of transcripts in place of earlier ones of the same runs, in one write. A part is dropped if its run
    /// has another head by now or is gone, and all of them if [`Erasures::erasures`](crate::Erasures::erasures) is no longer this number. A kept
    /// part is removed with its run and by each erasure in its run.
    ///
    /// # Errors
    ///
    /// As [`Log::append`](crate::Log::append).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the parts are kept or not.
    async fn keep_transcript(
        &self,
        parts: Vec<TranscriptPart>,
        erasures: u64,
    ) -> Result<(), LogError>;
}
