//! A check of a workflow's record.

use backstop_event_log::{EventLog, LogError, read_events};
use layer0::event::{Event, EventKind};
use layer0::failure::{Facts, Failure};
use layer0::id::RunId;
use layer0::stop::Outcome;

use super::diverged::Diverged;
use super::progress::WorkflowProgress;

/// Returns whether the first event of a record is that of a workflow.
#[must_use]
pub fn is_workflow(first: &Event) -> bool {
    match &first.kind {
        EventKind::RunStarted(started) => started.agent.is_workflow(),
        _ => false,
    }
}

/// Checks the record of a workflow: the chain of its hashes, that each step that ended or waited was dispatched before,
/// and that each child run ended as the workflow recorded. Nothing is run. Returns the end of the workflow; `None`
/// while it is open.
///
/// # Errors
///
/// [`WorkflowRecordError::Log`] if the record cannot be read or trusted, [`WorkflowRecordError::Diverged`] with the
/// first event that does not follow from the earlier ones.
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
pub async fn replay_workflow(
    log: &dyn EventLog,
    run: &RunId,
) -> Result<Option<Outcome>, WorkflowRecordError> {
    let (summary, events) = read_events(log, run).await?;
    WorkflowProgress::from_events(&events)?;
    for event in &events {
        if let EventKind::OperatorReturned(returned) = &event.kind
            && let Some(below) = log.summary(&returned.run).await?
            // A child run that was reopened since has another end; one that was left open ended with its caller.
            && !below.is_open()
            && below.reopens == 0
            && below.outcome != Some(returned.outcome)
        {
            let ended = below.outcome.map_or("open", Outcome::as_str);
            return Err(Diverged::of_record(event.seq, ended, returned.outcome.as_str()).into());
        }
    }
    Ok(summary.outcome.filter(|_| !summary.is_open()))
}

/// An error in a workflow's record.
///
/// Retry: as the error inside says. Effect: none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkflowRecordError {
    /// The record contradicts itself.
    ///
    /// Retry: as the divergence says. Effect: as it says.
    #[error("the record contradicts itself")]
    Diverged(#[from] Diverged),
    /// The record cannot be read or trusted.
    ///
    /// Retry: as the log's error says. Effect: as it says.
    #[error("the workflow's record cannot be read")]
    Log(#[from] LogError),
}

impl Failure for WorkflowRecordError {
    fn facts(&self) -> Facts {
        match self {
            Self::Diverged(diverged) => diverged.facts(),
            Self::Log(error) => error.facts(),
        }
    }
}
