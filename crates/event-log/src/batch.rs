//! The content of one append.

use layer0::code::APPROVAL_EXPIRED;
use layer0::event::{EventKind, Hash, RunForked};
use layer0::id::RunId;

use crate::approval::{ApprovalChange, OpenApproval};
use crate::{LogError, LogKey, Moves, Payload, Record, RunSummary};

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
