use std::time::Duration;

use layer0::Timestamp;
use serde::Serialize;

/// The limits of stored texts. Older or surplus texts are pruned, the longest unseen first.
///
/// Texts of a session with an open run are kept, whatever their age, but count towards the other limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retention {
    /// Time for which a text is kept after it was last seen and after the last run of its session ended.
    pub max_age: Option<Duration>,
    /// Maximum number of texts.
    pub max_rows: Option<u64>,
    /// Maximum bytes of text.
    pub max_bytes: Option<u64>,
}

impl Retention {
    /// Keeps everything.
    pub const NONE: Self = Self { max_age: None, max_rows: None, max_bytes: None };

    /// Sets the maximum age.
    #[must_use]
    pub const fn max_age(mut self, age: Duration) -> Self {
        self.max_age = Some(age);
        self
    }

    /// Sets the maximum number of texts.
    #[must_use]
    pub const fn max_rows(mut self, rows: u64) -> Self {
        self.max_rows = Some(rows);
        self
    }

    /// Sets the maximum bytes of text.
    #[must_use]
    pub const fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// Returns the earliest time at which a text may last have been seen to be kept now.
    #[must_use]
    pub fn oldest(&self, now: Timestamp) -> Option<Timestamp> {
        let age = i64::try_from(self.max_age?.as_millis()).unwrap_or(i64::MAX);
        Some(Timestamp::from_millis(now.as_millis().saturating_sub(age)))
    }

    /// Returns whether this exceeds the limits.
    #[must_use]
    pub fn is_exceeded(&self, rows: u64, bytes: u64) -> bool {
        self.max_rows.is_some_and(|max| rows > max) || self.max_bytes.is_some_and(|max| bytes > max)
    }
}

impl Default for Retention {
    /// Returns 30 days and 256 MiB.
    fn default() -> Self {
        Self::NONE.max_age(Duration::from_secs(30 * 24 * 60 * 60)).max_bytes(256 * 1024 * 1024)
    }
}

/// The number of rows and bytes that were pruned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Pruned {
    /// Number of rows.
    pub rows: u64,
    /// Bytes of text.
    pub bytes: u64,
}

impl Pruned {
    /// Creates the result.
    #[must_use]
    pub const fn new(rows: u64, bytes: u64) -> Self {
        Self { rows, bytes }
    }
}
