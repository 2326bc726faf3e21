use std::collections::BTreeMap;
use std::sync::Arc;

use layer0::event::EventKind;
use layer0::{Code, Timestamp};
use serde::Serialize;

use crate::{AttemptFilter, Record};

/// Attempts at a model that failed on one day in one way, retried ones too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FailedAttempts {
    /// The beginning of the day, in UTC.
    pub day: Timestamp,
    /// The provider that was asked.
    pub provider: Arc<str>,
    /// The code.
    pub code: Code,
    /// How many there were.
    pub attempts: u64,
}

impl FailedAttempts {
    /// Makes a count.
    pub fn new(day: Timestamp, provider: impl Into<Arc<str>>, code: Code, attempts: u64) -> Self {
        Self { day, provider: provider.into(), code, attempts }
    }
}

/// Counts attempts that failed, record by record.
#[derive(Default)]
pub(crate) struct Counter(BTreeMap<(Timestamp, Arc<str>, Code), u64>);

impl Counter {
    /// Takes in a record of a run that is wanted, if it is of an attempt that is.
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
