//! Values shared by the statements of the queue.

use layer0::Timestamp;

/// Name of the default queue of runs and workers.
pub(super) const DEFAULT: &str = "default";

/// Converts a number of rows to the server's type.
pub(super) fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a time to the server's type.
pub(super) const fn millis(at: Timestamp) -> i64 {
    at.as_millis()
}
