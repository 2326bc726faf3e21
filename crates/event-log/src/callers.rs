//! The runs above one that was dispatched.

use layer0::id::RunId;

use crate::{EventLog, LogError, RunSummary};

/// Returns the open run at the head of the callers of a run: what goes on, and what is stopped, is that one
/// and with it all below. `None` where no run that is open dispatched it.
///
/// # Errors
///
/// As [`EventLog::summary`].
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
pub async fn open_root(log: &dyn EventLog, run: &RunSummary) -> Result<Option<RunId>, LogError> {
    let mut callers: Vec<RunId> = Vec::new();
    let mut above = run.parent.clone();
    // A record that was changed may lead in a circle.
    while let Some(parent) = above.filter(|parent| !callers.contains(parent)) {
        let Some(caller) = log.summary(&parent).await?.filter(RunSummary::is_open) else { break };
        above = caller.parent;
        callers.push(caller.run);
    }
    Ok(callers.pop())
}
