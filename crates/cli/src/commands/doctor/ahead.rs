//! Does the store know of a time that has not come?

use backstop_event_log::RunSummary;
use layer0::Timestamp;

use super::finding::Finding;

/// A record that is this far ahead of the clock says that the clock is wrong, in milliseconds.
const AHEAD_MS: i64 = 60_000;

/// Says that the clock is wrong, where the newest run began in the future.
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
