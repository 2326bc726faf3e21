//! The port of a log that stores records.

use std::sync::Arc;

use async_trait::async_trait;
use layer0::id::RunId;

use crate::{Batch, Claim, Lease, LogError, Record, RunSummary};

/// Stores the records of runs, and decides who may append to them.
///
/// A log stores what it is given and decides nothing about runs: the writers compute records, hashes and summaries.
#[async_trait]
pub trait Log: Send + Sync {
    /// Returns the lease under which this process acts for the runs of the log, if several processes share it.
    fn lease(&self) -> Option<Arc<dyn Lease>> {
        None
    }

    /// Claims a recorded run for writing, under a new epoch. There is no lease: the claims of a process end with it.
    ///
    /// A tree of runs has one owner: the run without a `root` in its `run.started`, and all runs whose `root` it is. A
    /// claim is refused while another handle has a run of the tree, and the claim of the root gives its child runs a
    /// new epoch too, so that appends of the handle that had them conflict. The same handle may claim runs of its tree
    /// one by one.
    ///
    /// # Errors
    ///
    /// [`LogError::Claimed`] while another writer has it, [`LogError::NotFound`], [`LogError::LostTail`] if an
    /// acknowledged event is missing, [`LogError::Locked`], [`LogError::Closed`], [`LogError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the run is not claimed, or is released soon.
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError>;

    /// Claims a new run. Its first append is refused if the run exists; the claim itself reserves nothing in other
    /// processes.
    fn claim_new(&self, run: &RunId) -> Claim;

    /// Appends a batch as [`Log::append`] does, if that never waits, and takes the batch's records and rows.
    /// `None` leaves the batch unchanged for [`Log::append`]. A wrapper around a log need not implement it.
    fn append_now(&self, batch: &mut Batch) -> Option<Result<(), LogError>> {
        let _ = batch;
        None
    }

    /// Appends a batch in one atomic write. When it returns, the batch is as durable as the log's options require.
    ///
    /// The write also removes the rows of the run's inbox that the batch takes (ids of other runs' rows are ignored),
    /// updates the open approvals ([`Batch::approval_changes`]) and removes requests that no longer apply: decisions of
    /// approvals that it closes, and at the end of the run all requests but those that
    /// [outlast it](crate::InboxRequest::outlasts_the_run).
    ///
    /// A batch with [`Batch::moves`] moves that subscription in the same write, also if it has no records: it sets the
    /// pattern, the segment and the cursor, unless that is `None`, and sets or removes the named positions
    /// ([`Subscription::take`](crate::Subscription::take)). The first move creates the subscription. The run is a [segment](crate::segment_id) of
    /// the subscription: segments belong to no session, and any number of them may be open.
    ///
    /// A batch with [`Batch::is_import`] starts a run that may follow a run which this log does not have, and may have
    /// the id of a forgotten one. The other rules for its session apply.
    ///
    /// # Errors
    ///
    /// [`LogError::Conflict`] if the run does not end just before the batch or has a newer claim, or if the batch moves
    /// a subscription whose newest segment is neither the batch's nor the one before; nothing was written then.
    ///
    /// [`LogError::SessionBusy`] if the batch starts a root run in a session that has an open run, or whose last run is
    /// not the one that the new run follows, or if it [reopens](Batch::reopens) a run while another one is open. Runs
    /// that were dispatched together may be open at the same time: a run with [`RunSummary::branch_of`] starts while
    /// that run is the last root of the session, and follows the same run as that one. [`LogError::Followed`] if it
    /// reopens a run that another run follows; nothing was written then.
    ///
    /// [`LogError::Forgetting`] and [`LogError::RunForgotten`] if it starts, reopens or copies a run that is being
    /// forgotten or was forgotten. [`LogError::NotFound`] if the run that it follows or was forked from is gone, unless
    /// the session is busy, and [`LogError::Erased`] if an event to copy was erased.
    ///
    /// [`LogError::LostTail`] and [`LogError::Lost`] if the record has lost acknowledged events. [`LogError::Locked`],
    /// [`LogError::Full`], [`LogError::Closed`], [`LogError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the batch is written completely or not at all.
    async fn append(&self, batch: Batch) -> Result<(), LogError>;

    /// Returns the summary of a run; `None` if there is no such run.
    ///
    /// Costs the same for every run, except one whose stored summary cannot be read: that is computed from the record.
    ///
    /// # Errors
    ///
    /// [`LogError::Locked`], [`LogError::Closed`], [`LogError::Failed`], and [`LogError::UnreadableRun`] if the record
    /// is broken too.
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError>;

    /// Returns the stored summary of a run. If it cannot be read, [`Log::summary`] may read the record; this does
    /// not.
    ///
    /// # Errors
    ///
    /// As [`Log::summary`], and [`LogError::UnreadableRun`].
    async fn kept_summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        self.summary(run).await
    }

    /// Returns the records of a run from `from_seq`, in order.
    ///
    /// # Errors
    ///
    /// As [`Log::summary`].
    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError>;
}
