//! Open runs whose process is dead.

use std::collections::BTreeMap;

use backstop_event_log::LogError;
use layer0::Timestamp;
use layer0::id::RunId;
use sqlx::Row;

use crate::database::Database;
use crate::fault::Fault;
use crate::liveness::has_lock;
use crate::runs::SEGMENTS;
use crate::text::column;

/// Running runs whose owner or tree's owner is gone, released its lock or did not renew its lease. A run that was
/// returned to its queue waits for a worker. A standby does not show the locks of its primary.
const INTERRUPTED: &str = concat!(
    "SELECT runs.run, coalesce(last.at, runs.started_at) AS since FROM backstop.runs AS runs \
     LEFT JOIN backstop.runs AS roots ON roots.run = runs.root \
     LEFT JOIN backstop.events AS last ON last.run_id = runs.id AND last.seq = runs.last_seq \
     WHERE runs.state = 'running' AND runs.run NOT LIKE $1 \
     AND NOT EXISTS (SELECT FROM backstop.processes \
         WHERE processes.id = coalesce(roots.owner, runs.owner) \
         AND lease_until > clock_timestamp() AND (pg_is_in_recovery() OR ",
    has_lock!(),
    ")) AND (coalesce(roots.owner, runs.owner) IS NOT NULL OR NOT EXISTS (SELECT FROM backstop.queue \
     WHERE queue.run = coalesce(runs.root, runs.run)))"
);

impl Database {
    /// Returns the runs whose process died while they were running, each with the time of its last event.
    ///
    /// Nothing is recorded about them; a worker or a resume takes over such a run. A process that was just cut off from
    /// the server may count as dead here; its runs are not taken over before that is certain.
    ///
    /// # Errors
    ///
    /// [`LogError::Unreachable`], [`LogError::Closed`], [`LogError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn interrupted_runs(&self) -> Result<BTreeMap<RunId, Timestamp>, LogError> {
        let rows = sqlx::query(INTERRUPTED)
            .bind(SEGMENTS)
            .fetch_all(&mut *self.pool().lend().await?)
            .await
            .map_err(Fault::from)?;
        let mut interrupted = BTreeMap::new();
        for row in &rows {
            let since = row.try_get("since").map_err(Fault::from)?;
            let run = column(row, "run").map_err(Fault::from)?;
            interrupted.insert(run.into(), Timestamp::from_millis(since));
        }
        Ok(interrupted)
    }
}
