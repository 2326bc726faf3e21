//! The current status of a run, in whichever process.

use backstop_event_log::{EventLog, LogError, RunSummary};
use backstop_react_machine::{Budget, Price};
use layer0::event::Event;
use layer0::id::RunId;

use crate::agent::Agent;

/// Number of last events in a status.
const RECENT: u64 = 10;

/// The current status of a run.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RunStatus {
    /// State, outcome, usage with its cost, errors, the last failure.
    pub summary: RunSummary,
    /// Its budget.
    pub budget: Budget,
    /// Its last events, at most 10, oldest first, without erased ones. They are not checked against the hash chain.
    pub recent: Vec<Event>,
}

/// Returns the current status of a run, also while another process runs it; `None` if there is no such run. The cost is
/// the same for any length of the run.
///
/// # Errors
///
/// As [`Log::summary`](backstop_event_log::Log::summary), [`LogError::UnreadableRun`] if its budget cannot be read, and
/// the errors of
/// [`Record::decode`](backstop_event_log::Record::decode) for recent events.
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
        // The budget belongs to a definition that this version does not know.
        LogError::unreadable_run(run.clone(), error)
    })?;
    let budget = budget.unwrap_or_default();
    let budget = budget.with_increase(&summary.raised.as_deref().copied().unwrap_or_default());
    Ok(Some(RunStatus { summary: add_cost(summary), budget, recent: recent? }))
}

/// Adds the cost of a run so far, if the price is known.
#[must_use]
pub fn add_cost(mut summary: RunSummary) -> RunSummary {
    if summary.usage.cost_usd.is_none()
        && let Ok(Some(price)) = summary.terms.price().read::<Option<Price>>()
    {
        summary.usage.cost_usd = Some(price.compute_cost(&summary.usage));
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
