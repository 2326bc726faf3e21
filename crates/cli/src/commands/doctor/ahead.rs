//! Check for times in the future.

use backstop_event_log::RunSummary;
use layer0::Timestamp;

use super::finding::Finding;

/// Difference between record and clock from which the clock is considered wrong, in milliseconds.
const AHEAD_MS: i64 = 60_000;

/// Returns a finding about the clock if the newest run began in the future.
pub(super) fn ahead_of_the_clock(newest: &[RunSummary], now: Timestamp) -> Option<Finding> {
    let began = newest.first()?.started_at.as_millis();
    (began > now.as_millis().saturating_add(AHEAD_MS)).then(|| {
        Finding::mend(
            "clock",
            "the newest run of the store began in the future",
            "set the clock, or let it be set (NTP)",
        )
    })
}
