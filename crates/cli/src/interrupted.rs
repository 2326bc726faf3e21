//! Open runs whose process is dead.

use std::collections::BTreeMap;

use backstop_event_log::{EventLog, LogError, RunSummary, open_root};
use layer0::Timestamp;
use layer0::id::RunId;

use crate::exit::CliError;
use crate::store::AnyDatabase;

/// Returns the runs whose process died while they were running, the run with the oldest last event first. For a tree it
/// returns the open run at the top: its child runs resume with it.
pub(crate) async fn find_roots(database: &AnyDatabase) -> Result<Vec<RunId>, CliError> {
    let log = database.log();
    let mut roots: BTreeMap<RunId, Timestamp> = BTreeMap::new();
    for (run, since) in database.interrupted_runs().await? {
        if let Some(root) = find_root(&*log, &run).await? {
            let known = roots.entry(root).or_insert(since);
            *known = since.min(*known);
        }
    }
    let mut roots: Vec<_> = roots.into_iter().collect();
    roots.sort_by_key(|(_, since)| *since);
    Ok(roots.into_iter().map(|(run, _)| run).collect())
}

/// Returns the open run at the top of a run's tree; `None` if the run has ended or been removed since.
async fn find_root(log: &dyn EventLog, run: &RunId) -> Result<Option<RunId>, LogError> {
    let root = async {
        let Some(summary) = log.summary(run).await?.filter(RunSummary::is_open) else {
            return Ok(None);
        };
        Ok(open_root(log, &summary).await?.or(Some(summary.run)))
    };
    match root.await {
        // The command that resumes the run reports the problem.
        Err(LogError::Tampered { .. } | LogError::UnreadableRun { .. }) => Ok(Some(run.clone())),
        found => found,
    }
}
