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
    Subscription,
};

/// The types of events that change what is open.
const CHANGES: [&str; 5] =
    ["approval.requested", "approval.granted", "approval.denied", "run.finished", "run.failed"];
/// The type of event that changes it where it names one of these codes: that of a call that a person denied, or that is
/// the same as one; and that of a call that may have run in events that were lost.
const ANSWER: &str = "tool.responded";
const CODES: [&str; 2] = [layer0::code::TOOL_APPROVAL_DENIED, layer0::code::TOOL_INTERRUPTED];

/// What is appended in one write: records of one run and the summary they lead to.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Batch {
    /// The run.
    pub run: RunId,
    /// The epoch of the claim under which it is written.
    pub epoch: u64,
    /// The records, in order, without a gap; empty where the batch only moves a subscription.
    pub records: Vec<Record>,
    /// The run after them.
    pub summary: RunSummary,
    /// The rows of the run's inbox that the records take in; they are gone afterwards.
    pub taken: Vec<u64>,
    /// What they move, where they are of a subscription.
    pub moves: Option<Box<Moves>>,
    /// Whether the records are those of another store: what they follow or were forked from need not be here, and a run
    /// that was forgotten may come back.
    pub is_import: bool,
    /// The erased events among the records of another store that carry a sound HMAC there, by seq. They get one here too.
    pub sealed_erasures: Vec<u64>,
}

impl Batch {
    /// Makes a batch that takes nothing from the inbox.
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

    /// Returns the number of its first event; of a batch without records, that of the next event of the run.
    #[must_use]
    pub fn first_seq(&self) -> u64 {
        self.records.first().map_or(self.summary.last_seq + 1, |record| record.seq)
    }

    /// Carries the records of another store as they are.
    #[must_use]
    pub const fn importing(mut self) -> Self {
        self.is_import = true;
        self
    }

    /// Names the erased events that carry a sound HMAC where they come from, by seq.
    #[must_use]
    pub fn with_sealed_erasures(mut self, sealed: Vec<u64>) -> Self {
        self.sealed_erasures = sealed;
        self
    }

    /// Returns the HMACs under a key of the erased events that carried one where they come from, by seq.
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

    /// Takes rows of the run's inbox.
    #[must_use]
    pub fn taking(mut self, taken: Vec<u64>) -> Self {
        self.taken = taken;
        self
    }

    /// Takes its records and rows out of it.
    pub(crate) fn take(&mut self) -> Self {
        let (records, taken) = (std::mem::take(&mut self.records), std::mem::take(&mut self.taken));
        let moves = self.moves.take();
        Self { records, taken, moves, ..self.clone() }
    }

    /// Returns where a run was cut off that begins as a copy of another run of this log.
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

    /// Does the batch open a run again that was over, and that no other run dispatched? Then no other
    /// run of its session may follow it or be open.
    #[must_use]
    pub fn reopens(&self) -> bool {
        let begins = self.records.first().is_none_or(|first| first.seq == 1);
        let is_opening = |record: &Record| record.event_type == "run.reopened";
        !begins && self.summary.parent.is_none() && self.records.iter().any(is_opening)
    }

    /// Does the run go on with another definition of its agent from here? Then its terms are other ones.
    #[must_use]
    pub fn adopts(&self) -> bool {
        self.records.iter().any(|record| {
            let names_one = |text: &str| text.contains(r#""agent":{"#);
            record.event_type == "run.resumed" && record.payload.text().is_some_and(names_one)
        })
    }

    /// Returns whether it begins a run that is no copy from another store.
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

    /// Returns what the batch does to the open approvals of its run, for logs that keep them.
    ///
    /// # Errors
    ///
    /// Items are [`LogError::Unreadable`] for an event about an approval that cannot be read: a log that
    /// keeps approvals must not append it.
    pub fn approval_changes(&self) -> impl Iterator<Item = Result<ApprovalChange, LogError>> + '_ {
        // A copy of a run asks for its approvals anew.
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

/// Keeps the events of runs.
#[async_trait]
pub trait EventLog: Send + Sync {
    /// Returns the key that new runs are sealed with; those of another log are not keyed.
    fn key(&self) -> Option<&LogKey> {
        None
    }

    /// Returns whether the log seals the row that it keeps of each run that is sealed with its [key](EventLog::key). The
    /// first event of such a run records this.
    fn seals_rows(&self) -> bool {
        false
    }

    /// Returns the HMACs that the log keeps for a run under its [key](EventLog::key); or `None`.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`].
    async fn seals(&self, run: &RunId) -> Result<Option<RunSeals>, LogError> {
        let _ = run;
        Ok(None)
    }

    /// Returns the lease under which this process acts for the runs of the log, where it is shared by several.
    fn lease(&self) -> Option<Arc<dyn Lease>> {
        None
    }

    /// Claims a recorded run for writing, under an epoch of its own. There is no lease: the claims of
    /// a process end with it.
    ///
    /// # Errors
    ///
    /// [`LogError::Claimed`] while another writer has it, [`LogError::NotFound`], [`LogError::LostTail`] where an
    /// acknowledged event is missing, [`LogError::Locked`], [`LogError::Closed`], [`LogError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the run is not claimed, or free again soon.
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError>;

    /// Claims a recorded run as [`EventLog::claim`] does, also one whose record has lost its tail, and returns the newest
    /// event that is known to be lost. The run stays refused to others until an append accepts the loss.
    ///
    /// # Errors
    ///
    /// As [`EventLog::claim`], but for [`LogError::LostTail`].
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

    /// Claims a run that is about to begin. Its first append is refused when the run exists.
    fn claim_new(&self, run: &RunId) -> Claim;

    /// Appends a batch as [`EventLog::append`] does, if that never waits, and takes its records and rows out of
    /// it; `None` leaves it as it is, to be given to [`EventLog::append`]. A log around another one need not
    /// pass it on.
    fn append_now(&self, batch: &mut Batch) -> Option<Result<(), LogError>> {
        let _ = batch;
        None
    }

    /// Appends a batch in one atomic write. When it returns, the batch is as durable as the log
    /// was opened to be.
    ///
    /// # Errors
    ///
    /// [`LogError::Conflict`] when the run does not end just before the batch or has a newer claim,
    /// [`LogError::SessionBusy`] when it begins a run that was not dispatched in a session that has an
    /// open one, or whose last one is not the one that it follows, or [reopens](Batch::reopens) a run
    /// beside an open one; those that were dispatched together with it ([`RunSummary::branch_of`]) may be
    /// open at the same time. [`LogError::Followed`] when it reopens a run that another one follows; then nothing was
    /// written. [`LogError::Forgetting`] and [`LogError::RunForgotten`] where a run begins, is reopened or is copied that
    /// is being forgotten or was; [`LogError::NotFound`] where the run that it follows or was forked from is gone, and
    /// [`LogError::Erased`] where an event that it would copy was erased; [`LogError::LostTail`] and [`LogError::Lost`]
    /// where the record has lost events that were acknowledged. [`LogError::Locked`], [`LogError::Full`], [`LogError::Closed`],
    /// [`LogError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the batch is written whole or not at all.
    async fn append(&self, batch: Batch) -> Result<(), LogError>;

    /// Returns a run at a glance; `None` when there is none. Costs the same for every run but one for
    /// which that cannot be read: it is what its record says.
    ///
    /// # Errors
    ///
    /// [`LogError::Locked`], [`LogError::Closed`], [`LogError::Failed`],
    /// [`LogError::UnreadableRun`] when the record is broken too.
    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError>;

    /// Returns what is kept of a run at a glance, as it is kept. [`EventLog::summary`] may read the
    /// record of a run for which that cannot be read; this does not.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`], and [`LogError::UnreadableRun`].
    async fn kept_summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        self.summary(run).await
    }

    /// Returns the records of a run from `from_seq` on, in order.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`].
    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError>;

    /// Reads some of the events behind a cursor, of all runs, in the order in which they were appended;
    /// [`follow`](crate::follow) reads on. Costs the same whatever stands before the cursor.
    ///
    /// # Errors
    ///
    /// [`LogError::ForeignCursor`]; as [`EventLog::summary`]; and [`LogError::Failed`] from a log that
    /// cannot be followed.
    async fn read_feed(&self, filter: &EventFilter, cursor: &Cursor) -> Result<FeedPage, LogError> {
        let _ = (filter, cursor);
        Err(LogError::Failed("this log cannot be followed".into()))
    }

    /// Watches for events that any process appends, to any run. Of a log that cannot be followed, the
    /// watch is ready once.
    fn watch_events(&self) -> EventWatch {
        EventWatches::default().watch()
    }

    /// Returns where a subscription stands; `None` where nothing was delivered to one of this name.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`], and [`LogError::Failed`] from a log that keeps no subscriptions.
    async fn subscription(&self, name: &str) -> Result<Option<Subscription>, LogError> {
        let _ = name;
        Err(LogError::Failed("this log keeps no subscriptions".into()))
    }

    /// Lists the subscriptions, by name.
    ///
    /// # Errors
    ///
    /// As [`EventLog::subscription`].
    async fn subscriptions(&self) -> Result<Vec<Subscription>, LogError> {
        Err(LogError::Failed("this log keeps no subscriptions".into()))
    }

    /// Lists runs, newest first; of the segments of subscriptions, those alone where they are asked for.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`].
    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunSummary>, LogError>;

    /// Counts the attempts at models that failed, by day, provider and code, in this order. Reads every
    /// record of the log, or of the runs that are wanted, unless the log knows better.
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

    /// Returns the run that began last in a session, of those that no other run dispatched and that are no
    /// branches. Costs the same however many runs there are.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`].
    async fn last_root(&self, session: &SessionId) -> Result<Option<RunSummary>, LogError>;

    /// Lists the approvals that are open and undecided, oldest first.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`].
    async fn open_approvals(&self) -> Result<Vec<OpenApproval>, LogError>;

    /// Puts a request into the inbox of a run, if its condition holds; see [`InboxRequest`]. Returns
    /// `false`, and changes nothing, when it does not. What was accepted is recorded by the run's
    /// writer, now or when the run is next taken over.
    ///
    /// # Errors
    ///
    /// [`LogError::ApprovalExpired`] for a decision that comes too late, also once the expiry is recorded;
    /// [`LogError::NotApprover`] for one of a person whom the approval does not name; then nothing was
    /// written. And as [`EventLog::append`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the request is accepted whole or not at all.
    async fn send(&self, request: InboxRequest, by: &str, at: Timestamp) -> Result<bool, LogError>;

    /// Returns what is in the inbox of a run, oldest first.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`].
    async fn inbox(&self, run: &RunId) -> Result<Vec<InboxMessage>, LogError>;

    /// Erases what an event says, with its salt: the chain of hashes still verifies, the run can be
    /// traced, and no longer replayed, resumed or copied. An event that was erased before stays so. What
    /// the run stored as errors and results is not looked at. Returns the runs that hold a copy.
    ///
    /// # Errors
    ///
    /// [`LogError::NotErasable`] for an event that is not there or has no salt, and from a log that
    /// cannot erase; [`LogError::KeyMissing`] for a run that is sealed with a key that the log does not have; and as [`EventLog::claim`], whose claim it needs.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the event is erased or as it was.
    async fn erase(&self, run: &RunId, seq: u64) -> Result<Vec<RunId>, LogError> {
        let _ = run;
        Err(LogError::not_erasable(seq, "this log cannot erase"))
    }

    /// Returns a number that changes with each erased event and each removed run of the log, or `None` from a log that does
    /// not count them. A text that was read from a record may be kept in memory and used as long as the number is the
    /// one from before the read. Costs the same however large the log is.
    ///
    /// # Errors
    ///
    /// As [`EventLog::summary`].
    async fn erasures(&self) -> Result<Option<u64>, LogError> {
        Ok(None)
    }

    /// Watches the inbox of a run, whichever process sends to it. In a log whose inbox may fail to be read, the watch
    /// is ready again within seconds while a row is there: a writer whose read failed looks again then.
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
/// [`LogError::Unreadable`], [`LogError::SchemaNewer`], and what the log itself fails with.
pub async fn read_events(
    log: &dyn EventLog,
    run: &RunId,
) -> Result<(RunSummary, Vec<Event>), LogError> {
    let (summary, records) = read_records(log, run).await?;
    let events = records.iter().map(|record| record.decode(run)).collect::<Result<_, _>>()?;
    Ok((summary, events))
}

/// Reads a whole run as it is stored, verified against its hash chain.
///
/// # Errors
///
/// [`LogError::NotFound`], [`LogError::Tampered`], [`LogError::KeyMissing`], and what the log itself
/// fails with.
pub async fn read_records(
    log: &dyn EventLog,
    run: &RunId,
) -> Result<(RunSummary, Vec<Record>), LogError> {
    let summary = log.summary(run).await?.ok_or_else(|| LogError::NotFound(run.clone()))?;
    let records = records_of(log, &summary).await?;
    Ok((summary, records))
}

/// Reads the records that a summary speaks of, verified against its head.
pub(crate) async fn records_of(
    log: &dyn EventLog,
    summary: &RunSummary,
) -> Result<Vec<Record>, LogError> {
    let mut records = log.records(&summary.run, 1).await?;
    // Another process may have appended in between; what is newer than the head is left out.
    records.retain(|record| record.seq <= summary.last_seq);
    verify(&records, summary, log.key())?;
    Ok(records)
}
