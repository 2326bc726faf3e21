//! Runs that have a record and that a worker can go on with.

use std::collections::HashSet;

use backstop_event_log::{LogError, RunState};
use layer0::Timestamp;
use layer0::id::RunId;

use super::values::{count, millis};
use super::worker_row::WorkerRow;
use crate::database::Database;
use crate::fault::Fault;
use crate::owner::{self, has_lock};
use crate::pool::Pool;
use crate::rows::{state_of, summary_of};
use crate::text::column;

/// A run that can be gone on with.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ready {
    /// The run.
    pub run: RunId,
    /// Its agent.
    pub agent: String,
}

/// Open runs that no run dispatched and that no living process has, which a worker has the agent of: those at work,
/// those parked, and those that wait with something in the inbox of their tree, which is where those are looked for:
/// many may wait.
const READY: &str = "SELECT runs.* FROM backstop.runs \
    JOIN unnest($1::text[], $2::text[]) AS agents (name, digest) \
    ON runs.agent = agents.name AND (agents.digest = '' OR runs.digest = agents.digest) \
    WHERE runs.id IN (SELECT id FROM backstop.runs WHERE parent IS NULL AND state IN ('running', 'parked') \
        AND (owner IS NULL OR owner = ANY($3)) \
        UNION ALL SELECT waiting.id FROM backstop.inbox JOIN backstop.runs AS told ON told.run = inbox.run \
        JOIN backstop.runs AS waiting ON waiting.run = coalesce(told.root, told.run) \
        WHERE waiting.state = 'waiting_approval' AND (waiting.owner IS NULL OR waiting.owner = ANY($3))) \
    ORDER BY runs.id LIMIT $4";

pub(super) async fn ready(
    database: &Database,
    worker: &WorkerRow,
    most: usize,
    now: Timestamp,
) -> Result<Vec<Ready>, LogError> {
    let dead = dead(database).await?;
    free_queue(database.pool(), &dead).await?;
    let rows = sqlx::query(READY)
        .bind(worker.names())
        .bind(worker.digests())
        .bind(&dead)
        .bind(count(most))
        .fetch_all(&mut *database.pool().lend().await?)
        .await
        .map_err(Fault::from)?;
    let mut ready = Vec::new();
    for row in &rows {
        if matches!(state_of(row), Ok(RunState::Parked)) {
            // One that cannot be read at a glance is tried.
            let parked = summary_of(row).ok().and_then(|summary| summary.parked);
            if parked.is_some_and(|(_, until)| millis(until) > millis(now)) {
                continue;
            }
        }
        ready.push(Ready {
            run: column(row, "run").map_err(Fault::from)?.into(),
            agent: column(row, "agent").map_err(Fault::from)?,
        });
    }
    Ok(ready)
}

/// Returns the owners of runs and of places in the queue whose processes have died.
async fn dead(database: &Database) -> Result<Vec<String>, LogError> {
    let (own, _) = database.owner().get().await?;
    let pool = database.pool();
    let owners: Vec<String> = sqlx::query_scalar(
        "SELECT owner FROM backstop.runs WHERE owner IS NOT NULL \
         UNION SELECT owner FROM backstop.queue WHERE owner IS NOT NULL",
    )
    .fetch_all(&mut *pool.lend().await?)
    .await
    .map_err(Fault::from)?;
    // Those that seem dead are looked at once more, each.
    let living: HashSet<String> = sqlx::query_scalar(concat!(
        "SELECT id FROM backstop.processes WHERE id = ANY($1) AND lease_until > clock_timestamp() AND ",
        has_lock!()
    ))
    .bind(&owners)
    .fetch_all(&mut *pool.lend().await?)
    .await
    .map_err(Fault::from)?
    .into_iter()
    .collect();
    let seem_dead = owners.into_iter().filter(|owner| *owner != *own && !living.contains(owner));
    let looks = seem_dead.map(|owner| async move {
        let is_alive = owner::is_alive(pool, &owner).await?;
        Ok::<_, LogError>((!is_alive).then_some(owner))
    });
    let looked = futures_util::future::try_join_all(looks).await?;
    Ok(looked.into_iter().flatten().collect())
}

/// Puts back what processes took that have died: those that have a record are gone on with from that.
async fn free_queue(pool: &Pool, dead: &[String]) -> Result<(), LogError> {
    if dead.is_empty() {
        return Ok(());
    }
    let mut lent = pool.lend().await?;
    sqlx::query("UPDATE backstop.queue SET owner = NULL WHERE owner = ANY($1)")
        .bind(dead)
        .execute(&mut *lent)
        .await
        .map_err(Fault::from)?;
    lent.end().await?;
    Ok(())
}
