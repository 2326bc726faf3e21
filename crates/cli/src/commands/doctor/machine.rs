//! The clock.

use backstop_clock::{Clock, SystemClock};
use layer0::Timestamp;

use super::finding::Finding;

/// A moment before this version was released: 2026-01-01T00:00:00Z, in milliseconds since 1970.
const EARLIEST_MS: i64 = 1_767_225_600_000;

/// Checks the clock, because records contain times.
pub(super) fn clock() -> Finding {
    let now = SystemClock.now();
    match now < Timestamp::from_millis(EARLIEST_MS) {
        true => Finding::mend(
            "clock",
            format!("it is {now}, the clock says"),
            "set the clock, or let it be set (NTP)",
        ),
        false => Finding::ok("clock", format!("it is {now}")),
    }
}
