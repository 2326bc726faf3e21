//! Processes that died while a delivery was in progress.

use std::collections::BTreeMap;

use backstop_event_log::{EventLog, LogError, Record, segment_id};
use layer0::event::EventKind;
use layer0::id::RunId;

use super::EventId;

/// Number of deaths after which a delivery is set aside.
pub(super) const MAX_DEATHS: u32 = 3;
/// Number of events read from the end of a record. A host writes fewer between the begin and the end of a delivery,
/// because its backlog is bounded.
const MAX_READ: u64 = 4_096;

/// The deliveries of a subscription that began and did not end, each with the number of processes that died while it
/// was in progress.
#[derive(Debug, Default)]
pub(super) struct Deaths(BTreeMap<EventId, u32>);

impl Deaths {
    /// Reads the end of a subscription's record, whose newest segment has this number. If the previous host died, each
    /// delivery that it left open counts one more death.
    pub(super) async fn read(
        log: &dyn EventLog,
        (name, number): (&str, u64),
        is_takeover: bool,
    ) -> Result<Self, LogError> {
        let newest = last_records(log, &segment_id(name, number), MAX_READ).await?;
        let rest = MAX_READ.saturating_sub(u64::try_from(newest.len()).unwrap_or(MAX_READ));
        let before = match number > 1 && rest > 0 {
            true => last_records(log, &segment_id(name, number - 1), rest).await?,
            false => Vec::new(),
        };
        let mut deaths = Self::default();
        before.iter().chain(&newest).for_each(|record| deaths.apply(record));
        if is_takeover {
            deaths.0.values_mut().for_each(|count| *count += 1);
        }
        Ok(deaths)
    }

    fn apply(&mut self, record: &Record) {
        let Some(text) = record.payload.text() else { return };
        // An event that cannot be read is ignored.
        match EventKind::decode(&record.event_type, text) {
            Ok(EventKind::BehaviorDelivered(begun)) => {
                self.0.insert((begun.run, begun.seq), begun.deaths);
            }
            Ok(EventKind::BehaviorCompleted(ended)) => self.forget(&(ended.run, ended.seq)),
            Ok(EventKind::BehaviorFailed(ended)) => self.forget(&(ended.run, ended.seq)),
            _ => {}
        }
    }

    /// Returns the number of processes that died while this delivery was in progress.
    pub(super) fn count(&self, event: &EventId) -> u32 {
        self.0.get(event).copied().unwrap_or(0)
    }

    /// Returns whether this is the last attempt before the delivery is set aside. It must then be the only delivery in
    /// progress, so that no other delivery can be to blame.
    pub(super) fn is_last_chance(&self, event: &EventId) -> bool {
        self.count(event) + 1 == MAX_DEATHS
    }

    /// Removes a delivery that ended.
    pub(super) fn forget(&mut self, event: &EventId) {
        self.0.remove(event);
    }
}

/// Reads the last events of a segment; none if it was pruned.
async fn last_records(
    log: &dyn EventLog,
    segment: &RunId,
    count: u64,
) -> Result<Vec<Record>, LogError> {
    let Some(summary) = log.summary(segment).await? else { return Ok(Vec::new()) };
    log.records(segment, summary.last_seq.saturating_sub(count) + 1).await
}
