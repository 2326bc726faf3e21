//! A cache of the runs whose costs are summed up.

use std::collections::BTreeMap;
use std::sync::Arc;

use backstop_event_log::{EventLog, LogError};
use backstop_react::Price;
use layer0::id::RunId;

/// Number of cached runs. The attempts of a run are recorded close together.
const REMEMBERED: usize = 4_096;

/// Runs that were read from a log, by id.
pub(super) struct KnownRuns<'log> {
    log: &'log dyn EventLog,
    known: BTreeMap<RunId, KnownRun>,
}

/// The agent, labels and token price of a run.
#[derive(Debug, Default)]
pub(super) struct KnownRun {
    pub(super) agent: String,
    pub(super) labels: Arc<BTreeMap<String, String>>,
    pub(super) price: Option<Price>,
}

impl<'log> KnownRuns<'log> {
    pub(super) fn new(log: &'log dyn EventLog) -> Self {
        Self { log, known: BTreeMap::new() }
    }

    /// Returns a run; a removed or unreadable run has no name and no price.
    pub(super) async fn get(&mut self, run: &RunId) -> Result<&KnownRun, LogError> {
        if !self.known.contains_key(run) {
            if self.known.len() >= REMEMBERED {
                self.known.clear();
            }
            let read = self.read(run).await?;
            self.known.insert(run.clone(), read);
        }
        Ok(self.known.entry(run.clone()).or_default())
    }

    async fn read(&self, run: &RunId) -> Result<KnownRun, LogError> {
        let summary = match self.log.summary(run).await {
            Ok(summary) => summary,
            // The other runs are still reported; `verify` names this one.
            Err(LogError::Tampered { .. } | LogError::UnreadableRun { .. }) => None,
            Err(error) => return Err(error),
        };
        let Some(summary) = summary else { return Ok(KnownRun::default()) };
        Ok(KnownRun {
            agent: summary.agent.to_string(),
            price: summary.terms.price().read().unwrap_or_default(),
            labels: summary.labels,
        })
    }
}
