//! Verification of a recorded run.

mod left;
mod seals;
mod unchecked;

use layer0::event::{Event, EventKind};
use layer0::id::RunId;

use self::left::LostParts;
use self::seals::SealCheck;
pub use self::unchecked::UncheckedParts;
use crate::EventLog;
use crate::fold::{RowRules, last_failure_before};
use crate::read::read_verified_records;
use crate::{LogError, Record, RunSummary};

/// The result of a successful verification.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Verified {
    /// The run's summary.
    pub summary: RunSummary,
    /// Numbers of the erased events. The summary was compared with the fold of the others.
    pub erased: Vec<u64>,
    /// The parts that could not be checked.
    pub unchecked: UncheckedParts,
}

/// Checks a run: its hash chain, the head in its row, and the row's summary, which must be equal to the fold of the
/// events, except the parts that erased events change.
///
/// If the run is sealed with a key, the row and the erasures must have an HMAC. Anyone who can write to the whole store
/// can forge an unkeyed record with every hash, and can restore an earlier state of a row.
///
/// # Errors
///
/// [`LogError::Tampered`] with the first seq that cannot be trusted; for a changed summary, that of the last event.
/// [`LogError::KeyMissing`], [`LogError::NotFound`], [`LogError::Unreadable`], [`LogError::UnreadableRun`],
/// [`LogError::SchemaNewer`], and any other error of the log.
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
pub async fn verify_run(log: &dyn EventLog, run: &RunId) -> Result<Verified, LogError> {
    let kept = log.kept_summary(run).await?;
    let summary = kept.ok_or_else(|| LogError::NotFound(run.clone()))?;
    let records = read_verified_records(log, &summary).await?;
    let (mut events, mut erased) = (Vec::with_capacity(records.len()), Vec::new());
    for record in &records {
        match record.decode(run) {
            Err(LogError::Erased { .. }) => erased.push(record),
            event => events.push(event?),
        }
    }
    let unchecked = match (log.key(), is_keyed(&events, &summary)) {
        (Some(key), true) => match log.seals(run).await? {
            Some(seals) => SealCheck { run, key, seals }.check(&events, &erased, &summary)?,
            None => UncheckedParts::default(),
        },
        _ => UncheckedParts::default(),
    };
    let fold = RecordFold { records: &records, events: &events, lost: LostParts::without(&erased) };
    if RULES.into_iter().any(|rules| fold.matches(&summary, rules)) {
        let erased = erased.iter().map(|record| record.seq).collect();
        Ok(Verified { summary, erased, unchecked })
    } else {
        Err(LogError::tampered_event(summary.last_seq, "the summary is not what the events say"))
    }
}

/// The rules of rows, the current ones first.
const RULES: [RowRules; 4] = [
    RowRules { keeps_start_in_forks: false, counts_ended_time: false },
    RowRules { keeps_start_in_forks: false, counts_ended_time: true },
    RowRules { keeps_start_in_forks: true, counts_ended_time: false },
    RowRules { keeps_start_in_forks: true, counts_ended_time: true },
];

/// The records of a run, to be compared with its row.
struct RecordFold<'a> {
    records: &'a [Record],
    /// The events without the erased ones.
    events: &'a [Event],
    lost: LostParts,
}

impl RecordFold<'_> {
    /// Returns whether the row is the fold of the records by these rules, except the parts that erased events change.
    fn matches(&self, row: &RunSummary, rules: RowRules) -> bool {
        let mut folded = self.fold(row, rules);
        self.lost.complete(&mut folded, row);
        folded == *row || {
            folded.last_failure = last_failure_before(self.events);
            self.lost.complete(&mut folded, row);
            folded == *row
        }
    }

    fn fold(&self, row: &RunSummary, rules: RowRules) -> RunSummary {
        let mut folded = RunSummary::new(row.run.clone());
        let mut events = self.events.iter().peekable();
        for record in self.records {
            match events.next_if(|event| event.seq == record.seq) {
                Some(event) => folded.apply_by(event, rules),
                None => folded.apply_erased_by(record, rules),
            }
        }
        if says_no_version(self.events) {
            // Rows of such records do not count these parts.
            (folded.messages, folded.dispatched_model_calls) =
                (row.messages, row.dispatched_model_calls);
            folded.usage.cost_usd = row.usage.cost_usd;
        }
        folded
    }
}

/// Returns whether the run is sealed with a key.
fn is_keyed(events: &[Event], summary: &RunSummary) -> bool {
    match events.first().filter(|event| event.seq == 1).map(|event| &event.kind) {
        Some(EventKind::RunStarted(started)) => started.key_id.is_some(),
        Some(EventKind::SubscriptionOpened(opened)) => opened.key_id.is_some(),
        _ => summary.key_id.is_some(),
    }
}

/// Returns whether the record is from before records named the version of the machine.
fn says_no_version(events: &[Event]) -> bool {
    match events.first().map(|event| &event.kind) {
        Some(EventKind::RunStarted(started)) => started.machine == 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
