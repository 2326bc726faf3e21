//! Callers of a child run.

use layer0::id::RunId;

use crate::{EventLog, LogError, RunSummary};

/// Returns the open run at the head of the callers of a run: the run to resume or stop, together with all its
/// descendants. `None` if no open run dispatched it.
///
/// # Errors
///
/// As [`Log::summary`](crate::Log::summary).
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
pub async fn open_root(log: &dyn EventLog, run: &RunSummary) -> Result<Option<RunId>, LogError> {
    let mut callers: Vec<RunId> = Vec::new();
    let mut above = run.parent.clone();
    // A changed record may have a cycle.
    while let Some(parent) = above.filter(|parent| !callers.contains(parent)) {
        let Some(caller) = log.summary(&parent).await?.filter(RunSummary::is_open) else { break };
        above = caller.parent;
        callers.push(caller.run);
    }
    Ok(callers.pop())
}
