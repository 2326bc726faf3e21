//! Failed deliveries in the records of subscriptions.

use std::collections::BTreeMap;

use backstop_event_log::{Cursor, EventFilter, EventLog, LogError, segment_id};
use layer0::Timestamp;
use layer0::event::{BehaviorFailed, Event, EventKind};
use layer0::id::RunId;
use serde::Serialize;

use crate::delivery::delivery_id;

/// A delivery that failed for good. As JSON: `id`, `at`, and the fields of `behavior.failed`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FailedDelivery {
    /// Id of the delivery, for [`BehaviorHost::redeliver`](crate::BehaviorHost::redeliver).
    pub id: String,
    /// Time at which the failure was recorded.
    pub at: Timestamp,
    /// The recorded failure.
    #[serde(flatten)]
    pub failed: BehaviorFailed,
}

/// Returns the failures of all subscriptions, at most `limit`, newest first, without deliveries that were completed later.
///
/// Only the records of subscriptions are read, from their newest segments until there are enough failures; the records
/// of runs are not.
///
/// ```
/// use backstop_behaviors::newest_failures;
/// use backstop_event_log::MemoryLog;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), backstop_event_log::LogError> {
/// assert!(newest_failures(&MemoryLog::new(), 20).await?.is_empty());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If the log fails.
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
pub async fn newest_failures(
    log: &dyn EventLog,
    limit: usize,
) -> Result<Vec<FailedDelivery>, LogError> {
    let mut newest: Vec<(Option<u64>, FailedDelivery)> = Vec::new();
    for subscription in log.subscriptions().await? {
        let (mut found, mut number) = (0, subscription.segment);
        let mut later = Completions::default();
        while found < limit && number > 0 {
            let segment = segment_id(&subscription.name, number);
            // Segments are removed from the oldest on, so that earlier ones are gone too.
            if log.summary(&segment).await?.is_none() {
                break;
            }
            let mut failures = read_failures(log, &segment).await?;
            later.unread.push(segment);
            if !failures.is_empty() {
                later.read(log).await?;
                failures.retain(|(at, failed)| !later.has(&failed.id, *at));
            }
            found += failures.len();
            newest.extend(failures);
            number -= 1;
        }
        newest.sort_by(|(one, _), (other, _)| other.cmp(one));
        newest.truncate(limit);
    }
    Ok(newest.into_iter().map(|(_, failed)| failed).collect())
}

/// The completed deliveries of the newest segments, with the number of the last completion in the log.
#[derive(Default)]
struct Completions {
    by_id: BTreeMap<String, Option<u64>>,
    /// Segments that are only read if an older one has a failure.
    unread: Vec<RunId>,
}

impl Completions {
    async fn read(&mut self, log: &dyn EventLog) -> Result<(), LogError> {
        for segment in self.unread.drain(..) {
            for (number, event) in read_events_of(log, &segment, "behavior.completed").await? {
                let EventKind::BehaviorCompleted(done) = event.kind else { continue };
                let id = delivery_id(&done.behavior, &done.run, done.seq);
                let last = self.by_id.entry(id).or_default();
                *last = number.max(*last);
            }
        }
        Ok(())
    }

    /// Returns whether a delivery was completed after its failure.
    fn has(&self, id: &str, failed: Option<u64>) -> bool {
        self.by_id.get(id).is_some_and(|completed| *completed > failed)
    }
}

/// Reads the failures of a segment, with their numbers in the log.
async fn read_failures(
    log: &dyn EventLog,
    segment: &RunId,
) -> Result<Vec<(Option<u64>, FailedDelivery)>, LogError> {
    let events = read_events_of(log, segment, "behavior.failed").await?.into_iter();
    let failure = |(number, event): (Option<u64>, Event)| {
        let EventKind::BehaviorFailed(failed) = event.kind else { return None };
        let id = delivery_id(&failed.behavior, &failed.run, failed.seq);
        Some((number, FailedDelivery { id, at: event.at, failed }))
    };
    Ok(events.filter_map(failure).collect())
}

/// Reads the events of a type in a segment, with their numbers in the log.
async fn read_events_of(
    log: &dyn EventLog,
    segment: &RunId,
    event_type: &str,
) -> Result<Vec<(Option<u64>, Event)>, LogError> {
    let filter = EventFilter::new().run(segment.clone()).event_type(event_type);
    let (mut cursor, mut events) = (Cursor::start(), Vec::new());
    loop {
        let page = log.read_feed(&filter, &cursor).await?;
        for next in page.records {
            match next.record.decode(segment) {
                Err(LogError::Erased { .. }) => {}
                event => events.push((next.cursor.number(), event?)),
            }
        }
        if page.is_end {
            return Ok(events);
        }
        cursor = page.cursor;
    }
}
