use async_trait::async_trait;
use layer0::event::Event;
use layer0::id::{RunId, SessionId};

use crate::record::verify;
use crate::{LogError, Record, RunSummary};

/// What is appended in one write: records of one run and the summary they lead to.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// The run.
    pub run: RunId,
    /// The records, in order, without a gap; never empty.
    pub records: Vec<Record>,
    /// The run after them.
    pub summary: RunSummary,
}

/// Which runs are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only runs of this conversation.
    pub session: Option<SessionId>,
    /// At most this many, newest first.
    pub limit: Option<u32>,
}

/// Keeps the events of runs.
#[async_trait]
pub trait EventLog: Send + Sync {
    /// Appends a batch in one atomic write. When it returns, the batch is as durable as the log
    /// was opened to be.
    ///
    /// # Errors
    ///
    /// [`LogError::Conflict`] when the run does not end just before the batch; then nothing was
    /// written. [`LogError::Locked`], [`LogError::Full`], [`LogError::Closed`],
    /// [`LogError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the batch is written whole or not at all.
    async fn append(&self, batch: Batch) -> Result<(), LogError>;

    /// Returns a run at a glance; `None` when there is none. Costs the same for every run.
    ///
    /// # Errors
    ///
    /// [`LogError::Locked`], [`LogError::Closed`], [`LogError::Failed`].
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError>;

    /// Returns the records of a run from `from_seq` on, in order.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`].
    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError>;

    /// Lists runs, newest first.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`].
    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunSummary>, LogError>;
}

/// Reads a whole run, verified against its hash chain.
///
/// # Errors
///
/// [`LogError::NotFound`], [`LogError::Tampered`], [`LogError::SchemaNewer`], and what the log
/// itself fails with.
pub async fn read_events(
    log: &dyn EventLog,
    run: &RunId,
) -> Result<(RunSummary, Vec<Event>), LogError> {
    let summary = log.summary(run).await?.ok_or_else(|| LogError::NotFound(run.clone()))?;
    let mut records = log.records(run, 1).await?;
    // Another process may have appended in between; what is newer than the head is left out.
    records.retain(|record| record.seq <= summary.last_seq);
    verify(&records, &summary.head)?;
    let events = records.iter().map(|record| record.decode(run)).collect::<Result<_, _>>()?;
    Ok((summary, events))
}
