//! Failed deliveries in the records of subscriptions.

use std::collections::BTreeMap;

use backstop_event_log::{Cursor, EventFilter, EventLog, LogError, segment_id};
use layer0::Timestamp;
use layer0::event::{BehaviorFailed, EventKind};
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
        // Of the segments that were read, which are later than the next one.
        let mut completed = BTreeMap::new();
        while found < limit && number > 0 {
            let segment = segment_id(&subscription.name, number);
            // Segments are removed from the oldest on, so that earlier ones are gone too.
            if log.summary(&segment).await?.is_none() {
                break;
            }
            let mut failures = read_segment(log, &segment, &mut completed).await?;
            failures.retain(|(at, failed)| completed.get(&failed.id).is_none_or(|done| done < at));
            found += failures.len();
            newest.extend(failures);
            number -= 1;
        }
        newest.sort_by(|(one, _), (other, _)| other.cmp(one));
        newest.truncate(limit);
    }
    Ok(newest.into_iter().map(|(_, failed)| failed).collect())
}

/// Reads the failures of a segment, with their numbers in the log, and adds the last completion of each delivery.
async fn read_segment(
    log: &dyn EventLog,
    segment: &RunId,
    completed: &mut BTreeMap<String, Option<u64>>,
) -> Result<Vec<(Option<u64>, FailedDelivery)>, LogError> {
    let filter = EventFilter::new().run(segment.clone());
    let filter = filter.event_type("behavior.failed").event_type("behavior.completed");
    let (mut cursor, mut failures) = (Cursor::start(), Vec::new());
    loop {
        let page = log.read_feed(&filter, &cursor).await?;
        for next in page.records {
            let number = next.cursor.number();
            let event = match next.record.decode(segment) {
                Err(LogError::Erased { .. }) => continue,
                event => event?,
            };
            match event.kind {
                EventKind::BehaviorFailed(failed) => {
                    let id = delivery_id(&failed.behavior, &failed.run, failed.seq);
                    failures.push((number, FailedDelivery { id, at: event.at, failed }));
                }
                EventKind::BehaviorCompleted(done) => {
                    let id = delivery_id(&done.behavior, &done.run, done.seq);
                    let last = completed.entry(id).or_default();
                    *last = number.max(*last);
                }
                _ => {}
            }
        }
        if page.is_end {
            return Ok(failures);
        }
        cursor = page.cursor;
    }
}
