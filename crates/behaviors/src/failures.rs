//! The deliveries that failed, as the records of subscriptions have them.

use backstop_event_log::{Cursor, EventFilter, EventLog, LogError, segment_id};
use layer0::Timestamp;
use layer0::event::{BehaviorFailed, EventKind};
use layer0::id::RunId;
use serde::Serialize;

use crate::delivery::delivery_id;

/// A delivery that failed for good. As JSON: `id`, `at`, and what `behavior.failed` says.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FailedDelivery {
    /// The id of the delivery, by which it is made again.
    pub id: String,
    /// When that was recorded.
    pub at: Timestamp,
    /// How it failed.
    #[serde(flatten)]
    pub failed: BehaviorFailed,
}

/// Returns the failures of all subscriptions, at most so many, newest first. Only the records of subscriptions are
/// read, from their newest segments on until there are enough; the runs of the log are not.
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
/// What the log fails with.
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
        let mut found = 0;
        let mut number = subscription.segment;
        while found < limit && number > 0 {
            let segment = segment_id(&subscription.name, number);
            // Earlier segments are gone too: they are removed from the oldest on.
            if log.summary(&segment).await?.is_none() {
                break;
            }
            let failures = failures_of(log, &segment).await?;
            found += failures.len();
            newest.extend(failures);
            number -= 1;
        }
        newest.sort_by(|(one, _), (other, _)| other.cmp(one));
        newest.truncate(limit);
    }
    Ok(newest.into_iter().map(|(_, failed)| failed).collect())
}

/// Reads the failures of a segment, with their places in the log.
async fn failures_of(
    log: &dyn EventLog,
    segment: &RunId,
) -> Result<Vec<(Option<u64>, FailedDelivery)>, LogError> {
    let filter = EventFilter::new().run(segment.clone()).event_type("behavior.failed");
    let (mut cursor, mut failures) = (Cursor::start(), Vec::new());
    loop {
        let page = log.read_feed(&filter, &cursor).await?;
        for next in page.records {
            let event = match next.record.decode(segment) {
                Err(LogError::Erased { .. }) => continue,
                event => event?,
            };
            let EventKind::BehaviorFailed(failed) = event.kind else { continue };
            let id = delivery_id(&failed.behavior, &failed.run, failed.seq);
            failures.push((next.cursor.number(), FailedDelivery { id, at: event.at, failed }));
        }
        if page.is_end {
            return Ok(failures);
        }
        cursor = page.cursor;
    }
}
