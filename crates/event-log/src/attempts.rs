use std::collections::BTreeMap;
use std::sync::Arc;

use layer0::event::EventKind;
use layer0::{Code, Timestamp};
use serde::Serialize;

use crate::{AttemptFilter, Record};

/// Number of failed model attempts with one code on one day, including retried ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FailedAttempts {
    /// Start of the day, in UTC.
    pub day: Timestamp,
    /// The provider of the attempts.
    pub provider: Arc<str>,
    /// Code of the failures.
    pub code: Code,
    /// Number of attempts.
    pub attempts: u64,
}

impl FailedAttempts {
    /// Creates a count.
    pub fn new(day: Timestamp, provider: impl Into<Arc<str>>, code: Code, attempts: u64) -> Self {
        Self { day, provider: provider.into(), code, attempts }
    }
}

/// Counter of failed attempts, fed record by record.
#[derive(Default)]
pub(crate) struct Counter(BTreeMap<(Timestamp, Arc<str>, Code), u64>);

impl Counter {
    /// Counts a record of a run that matches the filter's runs, if its attempt matches too.
    pub(crate) fn take(&mut self, record: &Record, filter: &AttemptFilter) {
        let text = record.payload.text().filter(|_| record.event_type == "model.attempted");
        let kind = text.and_then(|text| EventKind::decode(&record.event_type, text).ok());
        if let Some(EventKind::ModelAttempted(attempted)) = kind
            && let Some(code) = attempted.code
            && filter.matches(&code, record.at)
        {
            let key = (record.at.start_of_day(), attempted.provider, code);
            *self.0.entry(key).or_default() += 1;
        }
    }

    /// Returns the counts by day, provider and code.
    pub(crate) fn counts(self) -> Vec<FailedAttempts> {
        let count =
            |((day, provider, code), attempts)| FailedAttempts { day, provider, code, attempts };
        self.0.into_iter().map(count).collect()
    }
}
