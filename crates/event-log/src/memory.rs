use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use layer0::id::RunId;

use crate::{Batch, EventLog, LogError, Record, RunFilter, RunSummary};

/// A log that lives as long as the process.
#[derive(Debug, Default)]
pub struct MemoryLog {
    runs: Mutex<BTreeMap<RunId, (RunSummary, Vec<Record>)>>,
}

impl MemoryLog {
    /// Makes an empty log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl EventLog for MemoryLog {
    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        let Some(first) = batch.records.first().map(|record| record.seq) else { return Ok(()) };
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let last = runs.get(&batch.run).map_or(0, |(summary, _)| summary.last_seq);
        if first != last + 1 {
            return Err(LogError::conflict(batch.run, first));
        }
        match runs.get_mut(&batch.run) {
            Some((summary, records)) => {
                *summary = batch.summary;
                records.extend(batch.records);
            }
            None => {
                runs.insert(batch.run, (batch.summary, batch.records));
            }
        }
        Ok(())
    }

    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(runs.get(run).map(|(summary, _)| summary.clone()))
    }

    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let records = runs.get(run).map_or(&[][..], |(_, records)| records);
        Ok(records.iter().filter(|record| record.seq >= from_seq).cloned().collect())
    }

    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunSummary>, LogError> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut summaries: Vec<RunSummary> = runs
            .values()
            .map(|(summary, _)| summary)
            .filter(|summary| filter.session.as_ref().is_none_or(|s| *s == summary.session))
            .cloned()
            .collect();
        summaries.sort_by(|a, b| (b.started_at, &b.run).cmp(&(a.started_at, &a.run)));
        summaries
            .truncate(filter.limit.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX));
        Ok(summaries)
    }
}
