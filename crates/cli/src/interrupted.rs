//! Open runs whose process is dead.

use backstop_event_log::RunSummary;

use crate::exit::CliError;
use crate::store::Database;

/// Returns the runs whose process died while they were running, the oldest first, without those that another one of
/// them dispatched: these resume with their caller.
pub(crate) async fn find_roots(database: &Database) -> Result<Vec<RunSummary>, CliError> {
    let log = database.log();
    let interrupted = database.interrupted_runs().await?;
    let mut roots = Vec::new();
    for run in interrupted.keys() {
        // It may have ended, or been removed, since.
        let Some(summary) = log.summary(run).await?.filter(RunSummary::is_open) else { continue };
        if summary.parent.as_ref().is_none_or(|parent| !interrupted.contains_key(parent)) {
            roots.push(summary);
        }
    }
    roots.sort_by_key(|run| run.started_at);
    Ok(roots)
}
