use std::time::Duration;

use layer0::Timestamp;
use serde::Serialize;

/// The limits on what is kept. Anything older or beyond them is pruned, the longest unseen first.
///
/// Texts of a session with an open run stay, whatever their age. They count for the other limits all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retention {
    /// The time a text is kept after it was last seen and after the last run of its session ended.
    pub max_age: Option<Duration>,
    /// The most texts that are kept.
    pub max_rows: Option<u64>,
    /// The most bytes of text that are kept.
    pub max_bytes: Option<u64>,
}

impl Retention {
    /// Keeps everything.
    pub const NONE: Self = Self { max_age: None, max_rows: None, max_bytes: None };

    /// Keeps at most this long.
    #[must_use]
    pub const fn max_age(mut self, age: Duration) -> Self {
        self.max_age = Some(age);
        self
    }

    /// Keeps at most this many.
    #[must_use]
    pub const fn max_rows(mut self, rows: u64) -> Self {
        self.max_rows = Some(rows);
        self
    }

    /// Keeps at most this many bytes.
    #[must_use]
    pub const fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// Returns since when something must have been seen to be kept at this moment.
    #[must_use]
    pub fn oldest(&self, now: Timestamp) -> Option<Timestamp> {
        let age = i64::try_from(self.max_age?.as_millis()).unwrap_or(i64::MAX);
        Some(Timestamp::from_millis(now.as_millis().saturating_sub(age)))
    }

    /// Returns whether this is more than is kept.
    #[must_use]
    pub fn is_exceeded(&self, rows: u64, bytes: u64) -> bool {
        self.max_rows.is_some_and(|max| rows > max) || self.max_bytes.is_some_and(|max| bytes > max)
    }
}

impl Default for Retention {
    /// 30 days and 256 MiB.
    fn default() -> Self {
        Self::NONE.max_age(Duration::from_secs(30 * 24 * 60 * 60)).max_bytes(256 * 1024 * 1024)
    }
}

/// The rows and bytes that pruning removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Pruned {
    /// The number of rows.
    pub rows: u64,
    /// The bytes of text.
    pub bytes: u64,
}

impl Pruned {
    /// Makes a count.
    #[must_use]
    pub const fn new(rows: u64, bytes: u64) -> Self {
        Self { rows, bytes }
    }
}
