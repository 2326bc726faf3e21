//! The log that a record is copied to, and the part of the record that is there already.

use backstop_event_log::{Batch, EventLog, LogError, Record, RunSummary};
use layer0::event::Hash;

/// The part of a record that is in another log.
pub(super) enum RecordPart {
    /// Its first events, up to this one.
    First(u64),
    /// The whole record, and perhaps more.
    Whole,
}

/// Compares a record with the one of its name in another log. One of the two begins with the other, or they are
/// different records.
pub(super) async fn compare(
    log: &dyn EventLog,
    there: &RunSummary,
    here: &RunSummary,
    records: &[Record],
) -> Result<RecordPart, LogError> {
    let conflict = || LogError::conflict(here.run.clone(), there.last_seq.min(here.last_seq) + 1);
    if there.last_seq >= here.last_seq {
        let last = match there.last_seq == here.last_seq {
            true => Some(there.head),
            false => hash_at(&log.records(&here.run, here.last_seq).await?, here.last_seq),
        };
        return if last == Some(here.head) { Ok(RecordPart::Whole) } else { Err(conflict()) };
    }
    // A run that is open there has a writer of its own.
    match hash_at(records, there.last_seq) == Some(there.head) && !there.is_open() {
        true => Ok(RecordPart::First(there.last_seq)),
        false => Err(conflict()),
    }
}

fn hash_at(records: &[Record], seq: u64) -> Option<Hash> {
    records.iter().find(|record| record.seq == seq).map(|record| record.hash)
}

/// The part of a record behind an event, which leads to the state of the summary.
pub(super) struct Rest<'a> {
    pub(super) summary: &'a RunSummary,
    pub(super) records: Vec<Record>,
    /// The last event that is in the other log; 0 where none is.
    pub(super) last: u64,
}

impl Rest<'_> {
    /// Appends the records to a log, and returns their number. The erased events with a sound HMAC are named by seq.
    pub(super) async fn append(
        mut self,
        log: &dyn EventLog,
        sealed_erasures: Vec<u64>,
    ) -> Result<u64, LogError> {
        let run = &self.summary.run;
        self.records.retain(|record| record.seq > self.last);
        let number = u64::try_from(self.records.len()).unwrap_or(u64::MAX);
        let claim = if self.last == 0 { log.claim_new(run) } else { log.claim(run).await? };
        let batch = Batch::new(run.clone(), claim.epoch(), self.records, self.summary.clone());
        log.append(batch.importing().with_sealed_erasures(sealed_erasures)).await?;
        Ok(number)
    }
}
