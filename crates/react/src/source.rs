//! Where a run is copied from, when that is not where the copy goes.

use std::sync::Arc;

use error_store::{ErrorFilter, ErrorStore, ResultStore, StoreError};
use event_log::{EventLog, LogError, RunWriter};
use layer0::event::{Event, EventKind};
use layer0::id::SessionId;

use crate::agent::Inner;
use crate::folding::{followed, started};
use crate::resume::ResumeError;

/// A log, and where what its runs stored is.
#[derive(Clone)]
#[non_exhaustive]
pub struct Source {
    /// The log.
    pub log: Arc<dyn EventLog>,
    /// The errors; where `None`, none are copied.
    pub errors: Option<Arc<dyn ErrorStore>>,
    /// The large results; where `None`, none are copied.
    pub results: Option<Arc<dyn ResultStore>>,
}

impl Source {
    /// Makes a source of a log alone.
    pub fn new(log: Arc<dyn EventLog>) -> Self {
        Self { log, errors: None, results: None }
    }

    /// Copies errors from here.
    #[must_use]
    pub fn errors(mut self, errors: Arc<dyn ErrorStore>) -> Self {
        self.errors = Some(errors);
        self
    }

    /// Copies large results from here.
    #[must_use]
    pub fn results(mut self, results: Arc<dyn ResultStore>) -> Self {
        self.results = Some(results);
        self
    }

    /// Copies what a run rests on to an agent's log and stores: the runs that it follows, and what
    /// they and it stored.
    pub(crate) async fn copy_to(
        &self,
        agent: &Inner,
        log: &Arc<dyn EventLog>,
        events: &[Event],
        sessions: &[SessionId],
    ) -> Result<(), ResumeError> {
        let follows = started(events)?.follows.as_ref();
        let runs = followed(&*self.log, follows).await?;
        for (summary, events) in runs.iter().rev() {
            match log.summary(&summary.run).await? {
                None => {}
                Some(there) if there.head == summary.head => continue,
                Some(_) => return Err(LogError::conflict(summary.run.clone(), 1).into()),
            }
            let mut records = self.log.records(&summary.run, 1).await?;
            records.retain(|record| record.seq <= summary.last_seq);
            let mut writer = RunWriter::copy(Arc::clone(log), summary.run.clone(), events, records);
            writer.commit().await?;
        }
        let all = runs.iter().flat_map(|(_, events)| events).chain(events);
        for event in all {
            self.copy_stored(agent, event, sessions).await?;
        }
        Ok(())
    }

    /// Copies what an event says was stored, if it is there.
    async fn copy_stored(
        &self,
        agent: &Inner,
        event: &Event,
        sessions: &[SessionId],
    ) -> Result<(), LogError> {
        match &event.kind {
            EventKind::ErrorStored(stored) => {
                let (Some(from), Some(to)) = (&self.errors, &agent.errors) else { return Ok(()) };
                let filter =
                    ErrorFilter { id: Some(stored.error_id.clone()), ..Default::default() };
                for error in from.list(filter).await.map_err(failed)? {
                    if sessions.contains(&error.session) {
                        to.keep(error).await.map_err(failed)?;
                    }
                }
            }
            EventKind::ResultStored(stored) => {
                let (Some(from), Some(to)) = (&self.results, &agent.results) else { return Ok(()) };
                if let Some(result) = from.get(None, &stored.result_id).await.map_err(failed)? {
                    to.keep(result).await.map_err(failed)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl<L: EventLog + 'static> From<Arc<L>> for Source {
    fn from(log: Arc<L>) -> Self {
        Self::new(log)
    }
}

/// A copy whose stored texts are missing would mislead its model.
fn failed(error: StoreError) -> LogError {
    LogError::Failed(error.into())
}
