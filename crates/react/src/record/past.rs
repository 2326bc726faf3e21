//! The history of a session, for a session that continues from it.

use backstop_event_log::{EventLog, LogError};
use layer0::event::EventKind;
use layer0::id::RunId;
use layer0::message::Transcript;

use crate::history::History;
use crate::record::transcript;

/// Returns the history of a run's session up to its end, for another session that continues from there. Unreadable
/// parts of earlier runs are left out.
///
/// ```
/// use std::sync::Arc;
///
/// use backstop_event_log::MemoryLog;
/// use backstop_provider::ScriptedProvider;
/// use backstop_react::{Agent, RunRequest, said_until};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let log = Arc::new(MemoryLog::new());
/// let model = ScriptedProvider::saying(["It is 42.", "It is 43."]);
/// let agent = Agent::builder(model).shared_log(log.clone()).build()?;
/// let first = agent.run("What is 40 + 2?").await?;
/// let said = said_until(&*log, &first.run_id).await?;
/// // The first session stays as it is.
/// let other = agent.run(RunRequest::new("And one more?").history(said)).await?;
/// assert_ne!(other.session, first.session);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`LogError::NotFound`], and what the log itself fails with.
pub async fn said_until(log: &dyn EventLog, run: &RunId) -> Result<History, LogError> {
    if log.summary(run).await?.is_none() {
        return Err(LogError::NotFound(run.clone()));
    }
    let history = transcript::history(log, Some(run), None).await;
    if let Some(unreadable) = history.unreadable {
        tracing::warn!(%run, "{unreadable}");
    }
    let mut said = Transcript::default().with_sessions(history.sessions);
    history.messages.into_iter().for_each(|message| said.push_shared(message));
    Ok(History::from(&said))
}

/// Returns the history of a run's session before the run, as [`said_until`] does.
///
/// # Errors
///
/// [`LogError::NotFound`], [`LogError::Tampered`], [`LogError::Erased`], [`LogError::Unreadable`] where the
/// start of the run cannot be read, and what the log itself fails with.
pub async fn said_before(log: &dyn EventLog, run: &RunId) -> Result<History, LogError> {
    let summary = log.summary(run).await?.ok_or_else(|| LogError::NotFound(run.clone()))?;
    if let Some(before) = &summary.follows {
        return said_until(log, before).await;
    }
    // The caller may have supplied a history.
    let (_, events) = backstop_event_log::read_events(log, run).await?;
    match events.into_iter().next().map(|event| event.kind) {
        Some(EventKind::RunStarted(started)) => {
            Ok(History::from(&started.history).with_sessions(started.sessions))
        }
        _ => Ok(History::default()),
    }
}
