//! A run as it is now, in whichever process.

use backstop_event_log::{EventLog, LogError, RunSummary};
use backstop_react_machine::{Budget, Price};
use layer0::event::Event;
use layer0::id::RunId;

use crate::agent::Agent;

/// How many of the last events a status has.
const RECENT: u64 = 10;

/// A run as it is now.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RunStatus {
    /// State, outcome, usage with its cost, errors, the last failure.
    pub summary: RunSummary,
    /// What it may use.
    pub budget: Budget,
    /// Its last events, at most 10, oldest first, without those that were erased. They are not checked against the
    /// hash chain.
    pub recent: Vec<Event>,
}

/// Returns a run as it is now, also while another process is running it. Costs the same however long
/// the run is; `None` when there is none.
///
/// # Errors
///
/// As [`EventLog::summary`], [`LogError::UnreadableRun`] when its budget cannot be read, and what
/// [`Record::decode`](backstop_event_log::Record::decode) says of a recent event.
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
pub async fn status(log: &dyn EventLog, run: &RunId) -> Result<Option<RunStatus>, LogError> {
    let Some(summary) = log.summary(run).await? else { return Ok(None) };
    let records = log.records(run, summary.last_seq.saturating_sub(RECENT - 1).max(1)).await?;
    // Others may have appended since the row was read.
    let known = records.iter().filter(|record| record.seq <= summary.last_seq);
    let recent = known.map(|record| record.decode(run));
    let recent = recent.filter(|event| !matches!(event, Err(LogError::Erased { .. })));
    let recent: Result<Vec<Event>, LogError> = recent.collect();
    let budget: Option<Budget> = summary.terms.budget().read().map_err(|error| {
        // The budget of a definition that this version does not know.
        LogError::unreadable_run(run.clone(), error)
    })?;
    let budget = budget.unwrap_or_default();
    let budget = budget.increased(&summary.raised.as_deref().copied().unwrap_or_default());
    Ok(Some(RunStatus { summary: priced(summary), budget, recent: recent? }))
}

/// Adds what a run has cost so far, where the price is known.
#[must_use]
pub fn priced(mut summary: RunSummary) -> RunSummary {
    if summary.usage.cost_usd.is_none()
        && let Ok(Some(price)) = summary.terms.price().read::<Option<Price>>()
    {
        summary.usage.cost_usd = Some(price.of(&summary.usage));
    }
    summary
}

impl Agent {
    /// Returns a run of the agent's log as [`status`] does; `None` without a log.
    ///
    /// # Errors
    ///
    /// As [`status`].
    ///
    /// # Cancel safety
    ///
    /// As [`status`].
    pub async fn status(&self, run: &RunId) -> Result<Option<RunStatus>, LogError> {
        match &self.inner.log {
            Some(log) => status(&**log, run).await,
            None => Ok(None),
        }
    }
}
