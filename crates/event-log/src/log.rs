use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use layer0::Timestamp;
use layer0::code::APPROVAL_EXPIRED;
use layer0::event::{Event, EventKind, Hash, LostTail, RunForked};
use layer0::id::{ApprovalId, RunId, SessionId};

use crate::approval::{ApprovalChange, Decision, OpenApproval};
use crate::attempts::{Counter, FailedAttempts};
use crate::chain::verify;
use crate::feed::{EventWatch, EventWatches, FeedPage};
use crate::{
    AttemptFilter, Claim, Cursor, EventFilter, InboxMessage, InboxRequest, InboxWatch, Lease,
    LogError, LogKey, LostRun, Moves, Payload, Record, RunFilter, RunSeals, RunSummary,
    Subscription, TranscriptPart,
};

/// Types of events that change the open approvals.
const CHANGES: [&str; 5] =
    ["approval.requested", "approval.granted", "approval.denied", "run.finished", "run.failed"];
/// Type of event that changes the open approvals if it contains one of these codes: the answer of a call that a person
/// denied, that repeats another call, or that may have run in lost events.
const ANSWER: &str = "tool.responded";
const CODES: [&str; 2] = [layer0::code::TOOL_APPROVAL_DENIED, layer0::code::TOOL_INTERRUPTED];

/// The content of one append: records of one run, and the summary after them.
///
/// A log stores the summary as given, because computing it would need the earlier records at each append. Whoever makes
/// a batch has to give the fold of the records: [`RunWriter`](crate::RunWriter) does, and a copy takes the row that was
/// verified with the records. [`verify_run`](crate::verify_run) finds any other summary.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Batch {
    /// The run.
    pub run: RunId,
    /// Epoch of the claim under which it is written.
    pub epoch: u64,
    /// The records, in order and without a gap; empty if the batch only moves a subscription.
    pub records: Vec<Record>,
    /// The summary after the records: the fold of all records of the run.
    pub summary: RunSummary,
    /// The rows of the run's inbox that the records contain; the append removes them.
    pub taken: Vec<u64>,
    /// The move of a subscription, if the records belong to one.
    pub moves: Option<Box<Moves>>,
    /// Whether the records come from another store: the run that they follow or were forked from need not exist here,
    /// and a forgotten run may be restored.
    pub is_import: bool,
    /// Numbers of the erased events in an import that have a valid HMAC in their store. They get an HMAC here too.
    pub sealed_erasures: Vec<u64>,
}

impl Batch {
    /// Creates a batch that removes nothing from the inbox.
    #[must_use]
    pub const fn new(run: RunId, epoch: u64, records: Vec<Record>, summary: RunSummary) -> Self {
        Self {
            run,
            epoch,
            records,
            summary,
            taken: Vec::new(),
            moves: None,
            is_import: false,
            sealed_erasures: Vec::new(),
        }
    }

    /// Returns the number of its first event; for a batch without records, the number of the run's next event.
    #[must_use]
    pub fn first_seq(&self) -> u64 {
        self.records.first().map_or(self.summary.last_seq + 1, |record| record.seq)
    }

    /// Marks the records as an import from another store.
    #[must_use]
    pub const fn importing(mut self) -> Self {
        self.is_import = true;
        self
    }

    /// Sets the numbers of the erased events that have a valid HMAC in their store.
    #[must_use]
    pub fn with_sealed_erasures(mut self, sealed: Vec<u64>) -> Self {
        self.sealed_erasures = sealed;
        self
    }

    /// Returns the HMACs under a key for the erased events that had one in their store, with their numbers.
    #[must_use]
    pub fn erasure_seals(&self, key: &LogKey) -> Vec<(u64, Hash)> {
        let seal = |record: &Record| match &record.payload {
            Payload::Erased(digest) if self.sealed_erasures.contains(&record.seq) => {
                let seal = key.seal_erasure(&self.run, record.seq, &record.hash, digest);
                Some((record.seq, seal))
            }
            _ => None,
        };
        self.records.iter().filter_map(seal).collect()
    }

    /// Sets the rows of the run's inbox to remove.
    #[must_use]
    pub fn taking(mut self, taken: Vec<u64>) -> Self {
        self.taken = taken;
        self
    }

    /// Moves the records and rows out of this batch into a new one.
    pub(crate) fn take(&mut self) -> Self {
        let (records, taken) = (std::mem::take(&mut self.records), std::mem::take(&mut self.taken));
        let moves = self.moves.take();
        Self { records, taken, moves, ..self.clone() }
    }

    /// Returns the `run.forked` event if the batch starts a copy of another run of this log.
    ///
    /// # Errors
    ///
    /// [`LogError::Unreadable`] for a `run.forked` that cannot be read.
    pub fn forked_from(&self) -> Result<Option<RunForked>, LogError> {
        let begins = self.records.first().is_some_and(|first| first.seq == 1);
        let is_fork = |record: &&Record| record.event_type == "run.forked";
        let Some(record) = self.records.iter().rfind(is_fork).filter(|_| begins && !self.is_import)
        else {
            return Ok(None);
        };
        let Some(text) = record.payload.text() else { return Ok(None) };
        match EventKind::decode("run.forked", text) {
            Ok(EventKind::RunForked(forked)) => Ok(Some(forked)),
            Ok(_) => Ok(None),
            Err(error) => Err(LogError::unreadable(record.seq, error)),
        }
    }

    /// Returns whether the batch reopens a root run that had ended. No other run of its session may then follow it or
    /// be open.
    #[must_use]
    pub fn reopens(&self) -> bool {
        let begins = self.records.first().is_none_or(|first| first.seq == 1);
        let is_opening = |record: &Record| record.event_type == "run.reopened";
        !begins && self.summary.parent.is_none() && self.records.iter().any(is_opening)
    }

    /// Returns whether the run continues under another definition of its agent, which changes its terms.
    #[must_use]
    pub fn adopts(&self) -> bool {
        self.records.iter().any(|record| {
            let names_one = |text: &str| text.contains(r#""agent":{"#);
            record.event_type == "run.resumed" && record.payload.text().is_some_and(names_one)
        })
    }

    /// Returns whether it starts a run that is not an import.
    #[must_use]
    pub fn begins(&self) -> bool {
        !self.is_import && self.records.first().is_some_and(|first| first.seq == 1)
    }

    /// Returns whether a person accepts with it that the record has lost events.
    #[must_use]
    pub fn accepts_loss(&self) -> bool {
        self.records.iter().any(|record| {
            let names_one = |text: &str| text.contains(r#""lost_tail":{"#);
            matches!(&*record.event_type, "run.resumed" | "run.reopened")
                && record.payload.text().is_some_and(names_one)
        })
    }

    /// Returns the changes of the run's open approvals; for logs that store approvals.
    ///
    /// # Errors
    ///
    /// Items are [`LogError::Unreadable`] for an approval event that cannot be read: a log that stores approvals must
    /// not append it.
    pub fn approval_changes(&self) -> impl Iterator<Item = Result<ApprovalChange, LogError>> + '_ {
        // A copy of a run requests its approvals again.
        let copied = self.records.iter().rposition(|record| record.event_type == "run.forked");
        self.records[copied.unwrap_or(0)..].iter().filter_map(|record| {
            let text = record.payload.text()?;
            let kind = &*record.event_type;
            let is_coded = kind == ANSWER && CODES.iter().any(|code| text.contains(code));
            if !CHANGES.contains(&kind) && !is_coded {
                return None;
            }
            let decoded = match EventKind::decode(kind, text) {
                Ok(decoded) => decoded,
                Err(error) => return Some(Err(LogError::unreadable(record.seq, error))),
            };
            Some(Ok(match decoded {
                EventKind::ApprovalRequested(asked) => {
                    let run = self.run.clone();
                    ApprovalChange::Asked(OpenApproval::new(run, record.seq, record.at, asked))
                }
                EventKind::ApprovalGranted(granted) => ApprovalChange::Closed(granted.call_id),
                EventKind::ApprovalDenied(denied) if denied.reason != APPROVAL_EXPIRED => {
                    ApprovalChange::Closed(denied.call_id)
                }
                EventKind::ApprovalDenied(denied) => ApprovalChange::Expired(denied.approval_id),
                EventKind::ToolResponded(answer) => ApprovalChange::Closed(answer.call_id),
                _ => ApprovalChange::AllClosed,
            }))
        })
    }
}

/// A store of runs' events.
///
/// # Implementing a log
///
/// A log stores what it is given and decides nothing about runs: the writers compute records, hashes and summaries. Its
/// promises are those of the methods, and the suites of `backstop_testkit::contract` check them: `event_log`,
/// `approvals`, `feed`, `subscriptions` and `transcripts` on one handle, `reopened_event_log` on several,
/// `erasable_event_log` for a log that can erase. `MemoryLog` is the shortest example.
///
/// All that the methods return outlasts the process if the log is durable: also the ids of pending requests, expired
/// approvals, settlements, epochs, subscriptions, and cursors of the feed that others have kept.
///
/// A log that wraps another forwards every method, also those with a default: the defaults are those of a log that
/// keeps no keys, leases, subscriptions or transcripts, and cannot erase.
#[async_trait]
pub trait EventLog: Send + Sync {
    /// Returns the key that seals new runs; a log without a key does not key its chains.
    fn key(&self) -> Option<&LogKey> {
        None
    }

    /// Returns whether the log seals its row of each run that is sealed with its [key](EventLog::key). The first event
    /// of such a run records this.
    fn seals_rows(&self) -> bool {
        false
    }

    /// Returns the HMACs of a run under the log's [key](EventLog::key), or `None`.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`].
    async fn seals(&self, run: &RunId) -> Result<Option<RunSeals>, LogError> {
        let _ = run;
        Ok(None)
    }

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

    /// Claims a recorded run as [`EventLog::claim`] does, also one whose record has lost its tail, and returns the
    /// newest event known to be lost. Other claims are refused until an append accepts the loss.
    ///
    /// # Errors
    ///
    /// As [`EventLog::claim`], except [`LogError::LostTail`].
    ///
    /// # Cancel safety
    ///
    /// As [`EventLog::claim`].
    async fn claim_with_loss(&self, run: &RunId) -> Result<(Claim, Option<LostTail>), LogError> {
        Ok((self.claim(run).await?, None))
    }

    /// Lists the runs that are refused because their records have lost their tails, by run.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`].
    async fn lost_tails(&self) -> Result<Vec<LostRun>, LogError> {
        Ok(Vec::new())
    }

    /// Claims a new run. Its first append is refused if the run exists; the claim itself reserves nothing in other
    /// processes.
    fn claim_new(&self, run: &RunId) -> Claim;

    /// Appends a batch as [`EventLog::append`] does, if that never waits, and takes the batch's records and rows.
    /// `None` leaves the batch unchanged for [`EventLog::append`]. A wrapper around a log need not implement it.
    fn append_now(&self, batch: &mut Batch) -> Option<Result<(), LogError>> {
        let _ = batch;
        None
    }

    /// Appends a batch in one atomic write. When it returns, the batch is as durable as the log's options require.
    ///
    /// The write also removes the rows of the run's inbox that the batch takes (ids of other runs' rows are ignored),
    /// updates the open approvals ([`Batch::approval_changes`]) and removes requests that no longer apply: decisions of
    /// approvals that it closes, and at the end of the run all requests but those that
    /// [outlast it](InboxRequest::outlasts_the_run).
    ///
    /// A batch with [`Batch::moves`] moves that subscription in the same write, also if it has no records: it sets the
    /// pattern, the segment and the cursor, unless that is `None`, and sets or removes the named positions
    /// ([`Subscription::take`]). The first move creates the subscription. The run is a [segment](crate::segment_id) of
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

    /// Returns the stored summary of a run. If it cannot be read, [`EventLog::summary`] may read the record; this does
    /// not.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`], and [`LogError::UnreadableRun`].
    async fn kept_summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        self.summary(run).await
    }

    /// Returns the records of a run from `from_seq`, in order.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`].
    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError>;

    /// Reads a page of events after a cursor, of all runs, in the order of appends; [`follow`](crate::follow) reads
    /// further. Costs the same wherever the cursor is.
    ///
    /// # Errors
    ///
    /// [`LogError::ForeignCursor`], the errors of [`EventLog::summary`], and [`LogError::Failed`] from a log that
    /// cannot be followed.
    async fn read_feed(&self, filter: &EventFilter, cursor: &Cursor) -> Result<FeedPage, LogError> {
        let _ = (filter, cursor);
        Err(LogError::Failed("this log cannot be followed".into()))
    }

    /// Watches for events that any process appends to any run. For a log that cannot be followed, the watch is ready
    /// once.
    fn watch_events(&self) -> EventWatch {
        EventWatches::default().watch()
    }

    /// Returns the state of a subscription, as the appends moved it; `None` if there is none with this name.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`], and [`LogError::Failed`] from a log without subscriptions.
    async fn subscription(&self, name: &str) -> Result<Option<Subscription>, LogError> {
        let _ = name;
        Err(LogError::Failed("this log keeps no subscriptions".into()))
    }

    /// Lists the subscriptions, by name. The positions of runs may be left out.
    ///
    /// # Errors
    ///
    /// As [`EventLog::subscription`].
    async fn subscriptions(&self) -> Result<Vec<Subscription>, LogError> {
        Err(LogError::Failed("this log keeps no subscriptions".into()))
    }

    /// Lists runs, the one that started last first; segments of subscriptions only if the filter asks for them, and
    /// then only these.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`].
    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunSummary>, LogError>;

    /// Counts the failed model attempts by day, provider and code, in this order. Reads every record of the log or of
    /// the filter's runs, unless the log has a faster way.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`].
    async fn failed_attempts(
        &self,
        filter: AttemptFilter,
    ) -> Result<Vec<FailedAttempts>, LogError> {
        let runs: BTreeSet<RunId> = match &filter.runs {
            Some(runs) => runs.iter().cloned().collect(),
            None => self.runs(RunFilter::new()).await?.into_iter().map(|run| run.run).collect(),
        };
        let mut counter = Counter::default();
        for run in runs {
            for record in self.records(&run, 1).await? {
                counter.take(&record, &filter);
            }
        }
        Ok(counter.counts())
    }

    /// Returns the root run that started last in a session, without branches. Costs the same however many runs there
    /// are.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`].
    async fn last_root(&self, session: &SessionId) -> Result<Option<RunSummary>, LogError>;

    /// Lists the approvals that are open and undecided, by the time of their request, oldest first. An approval whose
    /// decision or expiry is in an inbox is decided.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`].
    async fn open_approvals(&self) -> Result<Vec<OpenApproval>, LogError>;

    /// Puts a request into the inbox of a run, if its condition holds; see [`InboxRequest`]. Otherwise returns `false`
    /// and changes nothing.
    ///
    /// The run's writer records an accepted request, now or when the run is next claimed.
    ///
    /// # Errors
    ///
    /// [`LogError::ApprovalExpired`] for a decision at or after the expiry of its approval, or once the expiry is in the
    /// inbox or recorded, whatever time the decision has. [`LogError::NotApprover`] for a person whom the approval does
    /// not name; nothing was written then. Also as [`EventLog::append`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the request is accepted completely or not at all.
    async fn send(&self, request: InboxRequest, by: &str, at: Timestamp) -> Result<bool, LogError>;

    /// Returns the rows in the inbox of a run, oldest first.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`].
    async fn inbox(&self, run: &RunId) -> Result<Vec<InboxMessage>, LogError>;

    /// Erases the payload of an event, with its salt. Returns the runs that contain a copy.
    ///
    /// The hash chain can still be verified and the run traced, but not replayed, resumed or copied. An event that was
    /// already erased stays erased. Stored errors and results of the run are not changed.
    ///
    /// # Errors
    ///
    /// [`LogError::NotErasable`] for an event that does not exist or has no salt, and from a log that cannot erase;
    /// [`LogError::KeyMissing`] for a run that is sealed with a key that the log does not have; and as
    /// [`EventLog::claim`], because it needs the claim.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the event is either erased or unchanged.
    async fn erase(&self, run: &RunId, seq: u64) -> Result<Vec<RunId>, LogError> {
        let _ = run;
        Err(LogError::not_erasable(seq, "this log cannot erase"))
    }

    /// Returns a number that changes with each erased event and each removed run of the log; `None` from a log that
    /// does not count them.
    ///
    /// Text from a record may be cached and used as long as the number is the same as before the read. Costs the same
    /// however large the log is.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`].
    async fn erasures(&self) -> Result<Option<u64>, LogError> {
        Ok(None)
    }

    /// Returns the kept parts of a session's transcript up to a run, newest first: that of the run, of the one that it
    /// follows, and so on, up to the first that is missing or whose run has another head by now; at most a thousand.
    /// None from a log that keeps none. Costs one read, whatever the records hold.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`].
    async fn transcript(&self, until: &RunId) -> Result<Vec<TranscriptPart>, LogError> {
        let _ = until;
        Ok(Vec::new())
    }

    /// Keeps parts of transcripts in place of earlier ones of the same runs, in one write. A part is dropped if its run
    /// has another head by now or is gone, and all of them if [`EventLog::erasures`] is no longer this number. A kept
    /// part is removed with its run and by each erasure in its run.
    ///
    /// # Errors
    ///
    /// As [`EventLog::append`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the parts are kept or not.
    async fn keep_transcript(
        &self,
        parts: Vec<TranscriptPart>,
        erasures: u64,
    ) -> Result<(), LogError> {
        let _ = (parts, erasures);
        Ok(())
    }

    /// Watches the inbox of a run, for requests of any process.
    ///
    /// If reads of the inbox may fail, the watch is ready again within seconds while there is a row, so that a writer
    /// whose read failed reads again.
    fn watch_inbox(&self, run: &RunId) -> InboxWatch;

    /// Decides an approval, as [`EventLog::send`] does.
    ///
    /// # Errors
    ///
    /// As [`EventLog::send`].
    async fn decide(
        &self,
        id: &ApprovalId,
        decision: Decision,
        at: Timestamp,
    ) -> Result<bool, LogError> {
        let by = decision.by.clone();
        self.send(InboxRequest::Decide { approval: id.clone(), decision }, &by, at).await
    }
}

/// Reads a whole run, verified against its hash chain.
///
/// # Errors
///
/// [`LogError::NotFound`], [`LogError::Tampered`], [`LogError::KeyMissing`], [`LogError::Erased`],
/// [`LogError::Unreadable`], [`LogError::SchemaNewer`], and any other error of the log.
pub async fn read_events(
    log: &dyn EventLog,
    run: &RunId,
) -> Result<(RunSummary, Vec<Event>), LogError> {
    let (summary, records) = read_records(log, run).await?;
    let events = records.iter().map(|record| record.decode(run)).collect::<Result<_, _>>()?;
    Ok((summary, events))
}

/// Reads a whole run as stored, verified against its hash chain.
///
/// # Errors
///
/// [`LogError::NotFound`], [`LogError::Tampered`], [`LogError::KeyMissing`], and any other error of the log.
pub async fn read_records(
    log: &dyn EventLog,
    run: &RunId,
) -> Result<(RunSummary, Vec<Record>), LogError> {
    let summary = log.summary(run).await?.ok_or_else(|| LogError::NotFound(run.clone()))?;
    let records = read_verified_records(log, &summary).await?;
    Ok((summary, records))
}

/// Reads the records that a summary covers, verified against its head.
pub(crate) async fn read_verified_records(
    log: &dyn EventLog,
    summary: &RunSummary,
) -> Result<Vec<Record>, LogError> {
    let mut records = log.records(&summary.run, 1).await?;
    // Another process may have appended in between; records newer than the head are dropped.
    records.retain(|record| record.seq <= summary.last_seq);
    verify(&records, summary, log.key())?;
    Ok(records)
}
