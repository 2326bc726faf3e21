use async_trait::async_trait;
use layer0::event::Event;
use layer0::id::{ApprovalId, RunId, SessionId};

use crate::approval::{Decision, OpenApproval};
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

/// The right to write to a run, until it is dropped or the process dies.
#[must_use = "the run is free again when the claim is dropped"]
pub struct Claim(#[expect(dead_code, reason = "held for its drop")] Box<dyn Send + Sync>);

impl Claim {
    /// Makes a claim that ends when `held` is dropped.
    pub fn holding(held: impl Send + Sync + 'static) -> Self {
        Self(Box::new(held))
    }
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Claim")
    }
}

/// Keeps the events of runs.
#[async_trait]
pub trait EventLog: Send + Sync {
    /// Claims a run, which may not exist yet, for writing. There is no lease: the claim of a process
    /// ends with it.
    ///
    /// # Errors
    ///
    /// [`LogError::Claimed`] while somebody else is writing; [`LogError::Failed`].
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError>;

    /// Appends a batch in one atomic write. When it returns, the batch is as durable as the log
    /// was opened to be.
    ///
    /// # Errors
    ///
    /// [`LogError::Conflict`] when the run does not end just before the batch,
    /// [`LogError::SessionBusy`] when it begins a run that nobody dispatched in a session that has an
    /// open one, or whose last one is not the one that it follows; then nothing was written. [`LogError::Locked`], [`LogError::Full`], [`LogError::Closed`],
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

    /// Lists the questions that nobody has decided, oldest first.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`].
    async fn open_approvals(&self) -> Result<Vec<OpenApproval>, LogError>;

    /// Decides a question; whoever runs the run takes the decision in. Returns `false`, and changes
    /// nothing, when no such question is open or it was decided before.
    ///
    /// # Errors
    ///
    /// As [`EventLog::append`].
    async fn decide(&self, id: &ApprovalId, decision: Decision) -> Result<bool, LogError>;

    /// Returns what was decided about a question with [`EventLog::decide`].
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`].
    async fn decision(&self, id: &ApprovalId) -> Result<Option<Decision>, LogError>;
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
