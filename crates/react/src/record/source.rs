//! The source of a copied run, when it differs from the destination.

use std::sync::Arc;

use backstop_error_store::{ErrorStore, Lookup, ResultStore, Store, StoreError};
use backstop_event_log::{EventLog, LogError, RunWriter, read_records, readable_sessions};
use layer0::event::{Event, EventKind};
use layer0::id::SessionId;

use super::target::{RecordPart, Rest, compare};
use crate::agent::inner::AgentInner;
use crate::record::fold::read_run_started;
use crate::record::transcript::read_followed_runs;
use crate::resume_error::ResumeError;
use crate::stores::Stores;

/// A log, with the stores of its runs' errors and results.
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

    /// Copies the dependencies of a run to an agent's log and stores: the runs that it follows, and all stored errors
    /// and results of these runs.
    pub(crate) async fn copy_to(
        &self,
        agent: &AgentInner,
        log: &Arc<dyn EventLog>,
        events: &[Event],
        sessions: &[SessionId],
    ) -> Result<(), ResumeError> {
        let follows = read_run_started(events)?.follows.as_ref().map(|follows| &follows.run);
        // A session's history is read leniently: unreadable parts are not copied.
        let (runs, _) = read_followed_runs(&*self.log, follows).await;
        let earlier = runs.iter().flat_map(|(_, events)| readable_sessions(events));
        let sessions: Vec<SessionId> = earlier.chain(sessions.iter().cloned()).collect();
        for (summary, events) in runs.iter().rev() {
            let (_, mut records) = read_records(&*self.log, &summary.run).await?;
            records.retain(|record| record.seq <= summary.last_seq);
            if let Some(there) = log.summary(&summary.run).await? {
                if let RecordPart::First(last) = compare(&**log, &there, summary, &records).await? {
                    Rest { summary, records, last }.append(&**log, Vec::new()).await?;
                }
                continue;
            }
            let mut writer = RunWriter::copy(Arc::clone(log), summary.run.clone(), events, records);
            writer.commit().await?;
        }
        let stored = self.stores().into_guarded(agent.store_timeout(), &agent.clock);
        let all = runs.iter().flat_map(|(_, events)| events).chain(events);
        for event in all {
            copy_stored(&stored, &agent.stores, event, &sessions).await?;
        }
        Ok(())
    }

    /// Returns the stores of the runs' errors and results.
    pub(super) fn stores(&self) -> Stores {
        Stores { errors: self.errors.clone(), results: self.results.clone() }
    }

    /// Makes a source of a whole database.
    pub fn from_store(store: &(impl Store + ?Sized)) -> Self {
        Self::new(store.log()).errors(store.errors()).results(store.results())
    }
}

/// Copies the stored text that an event names, if it exists, and its expiry, if it has expired.
pub(crate) async fn copy_stored(
    from: &Stores,
    to: &Stores,
    event: &Event,
    sessions: &[SessionId],
) -> Result<(), LogError> {
    match &event.kind {
        EventKind::ErrorStored(stored) => {
            let (Some(from), Some(to)) = (&from.errors, &to.errors) else { return Ok(()) };
            for session in sessions {
                match from.get(session, &stored.error_id).await.map_err(to_log_error)? {
                    Lookup::Found(error) => to.keep(error).await.map_err(to_log_error)?,
                    Lookup::Expired => {
                        to.keep_expired(session, &stored.error_id).await.map_err(to_log_error)?;
                    }
                    _ => {}
                }
            }
        }
        EventKind::ResultStored(stored) => {
            let (Some(from), Some(to)) = (&from.results, &to.results) else { return Ok(()) };
            for session in sessions {
                match from.get(session, &stored.result_id).await.map_err(to_log_error)? {
                    Lookup::Found(result) => to.keep(result).await.map_err(to_log_error)?,
                    Lookup::Expired => {
                        to.keep_expired(session, &stored.result_id).await.map_err(to_log_error)?;
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
    Ok(())
}

impl<L: EventLog + 'static> From<Arc<L>> for Source {
    fn from(log: Arc<L>) -> Self {
        Self::new(log)
    }
}

/// A copy whose stored texts are missing would mislead its model.
fn to_log_error(error: StoreError) -> LogError {
    LogError::Failed(error.into())
}
