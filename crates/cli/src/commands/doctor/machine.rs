//! The clock.

use backstop_clock::{Clock, SystemClock};
use layer0::Timestamp;

use super::finding::Finding;

/// This version is younger than that: 2026-01-01T00:00:00Z, in milliseconds since 1970.
const EARLIEST_MS: i64 = 1_767_225_600_000;

/// Looks at the clock: what is recorded says when.
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
