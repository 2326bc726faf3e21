//! What the statements of the queue share.

use layer0::Timestamp;

/// The queue of runs and workers that name none.
pub(super) const DEFAULT: &str = "default";

/// Returns a number of rows.
pub(super) fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a time as it stands in a column.
pub(super) const fn millis(at: Timestamp) -> i64 {
    at.as_millis()
}
