use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use crate::ErrorRecord;

/// The property by which errors are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CountBy {
    /// The error's code in Backstop's catalogue.
    Code,
    /// The day on which they were first seen, in UTC.
    Day,
    /// The tool.
    Tool,
}

/// The number of errors that share a code, day or tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ErrorCount {
    /// The code, the day as `YYYY-MM-DD`, or the tool.
    pub key: String,
    /// The number of different errors.
    pub errors: u64,
    /// The number of times they were seen.
    pub occurrences: u64,
    /// The characters that the summaries spared the model, over all occurrences.
    pub chars_kept: u64,
}

impl ErrorCount {
    /// Creates a count.
    #[must_use]
    pub const fn new(key: String, errors: u64, occurrences: u64, chars_kept: u64) -> Self {
        Self { key, errors, occurrences, chars_kept }
    }

    /// Counts errors in groups, in the order of [`ErrorStore::count`](crate::ErrorStore::count).
    #[must_use]
    pub fn group_errors(errors: &[ErrorRecord], by: CountBy, limit: Option<u32>) -> Vec<Self> {
        let mut groups: BTreeMap<String, Self> = BTreeMap::new();
        for error in errors {
            let key = match by {
                CountBy::Code => error.reason().to_string(),
                CountBy::Day => error.at().date(),
                CountBy::Tool => error.tool().to_string(),
            };
            let count = groups.entry(key.clone()).or_insert_with(|| Self::new(key, 0, 0, 0));
            count.errors += 1;
            count.occurrences += error.occurrences();
            count.chars_kept += error.chars_kept() * error.occurrences();
        }
        let mut counts: Vec<Self> = groups.into_values().collect();
        if by != CountBy::Day {
            counts.sort_by_key(|count| Reverse(count.occurrences));
        }
        counts.truncate(limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX));
        counts
    }
}
