//! Runs with a record that a worker can resume.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{LogError, RunState};
use layer0::Timestamp;
use layer0::id::RunId;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::values::millis;
use super::worker_row::WorkerRow;
use crate::database::Database;
use crate::fault::Fault;
use crate::pool::ConnectionPool;
use crate::rows::{decode_state, decode_summary};
use crate::server_time::cap_at_server_time;
use crate::text::column;

/// Maximum wait of a search for a process that may be dead: the next search is not sooner.
const LOOK_WAIT: Duration = Duration::from_millis(500);

/// A run that can be resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ready {
    /// The run.
    pub run: RunId,
    /// Its agent.
    pub agent: String,
}

/// Open root runs without a live process whose agent a worker has: running and parked runs, and waiting runs with a row
/// in the inbox of their tree or an expired approval. Waiting runs are found through these rows, since many runs may
/// wait.
const READY: &str = "SELECT runs.* FROM backstop.runs \
    JOIN unnest($1::text[], $2::text[]) AS agents (name, digest) \
    ON runs.agent = agents.name AND (agents.digest = '' OR runs.digest = agents.digest) \
    LEFT JOIN backstop.queue ON queue.run = runs.run \
    WHERE runs.id IN (SELECT id FROM backstop.runs WHERE parent IS NULL AND state = ANY($4) \
        AND (owner IS NULL OR owner = ANY($3)) \
        UNION ALL SELECT waiting.id FROM backstop.inbox JOIN backstop.runs AS told ON told.run = inbox.run \
        JOIN backstop.runs AS waiting ON waiting.run = coalesce(told.root, told.run) \
        WHERE waiting.state = 'waiting_approval' AND (waiting.owner IS NULL OR waiting.owner = ANY($3)) \
        UNION ALL SELECT waiting.id FROM backstop.approvals JOIN backstop.runs AS asking ON asking.run = approvals.run \
        JOIN backstop.runs AS waiting ON waiting.run = coalesce(asking.root, asking.run) \
        WHERE approvals.expires_at <= $8 \
        AND waiting.state = 'waiting_approval' AND (waiting.owner IS NULL OR waiting.owner = ANY($3))) \
    AND NOT EXISTS (SELECT FROM backstop.lost_tails WHERE lost_tails.run = runs.run) \
    AND runs.id > $5 AND runs.run <> ALL($6) AND (queue.queue IS NULL OR queue.queue = ANY($7)) \
    ORDER BY runs.id LIMIT 256";

/// Search of a worker among the runs that have a record.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Look<'a> {
    /// Maximum number of runs.
    pub most: usize,
    /// Runs to skip for a while.
    pub paused: &'a [&'a str],
    /// Whether parked runs are examined: all of them are read, however many are not due.
    pub parked: bool,
}

impl<'a> Look<'a> {
    /// Creates a search for this number of runs, including parked ones.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self { most, paused: &[], parked: true }
    }

    /// Sets the runs to skip.
    #[must_use]
    pub const fn with_paused(mut self, runs: &'a [&'a str]) -> Self {
        self.paused = runs;
        self
    }

    /// Sets whether parked runs are examined.
    #[must_use]
    pub const fn with_parked(mut self, are_looked_at: bool) -> Self {
        self.parked = are_looked_at;
        self
    }
}

pub(super) async fn ready(
    database: &Database,
    worker: &WorkerRow,
    look: Look<'_>,
) -> Result<Vec<Ready>, LogError> {
    let dead = dead(database).await?;
    free_queue(database.pool(), &dead).await?;
    // time of day: a run that is due only by the server's clock would be resumed here, and wait again.
    let now = cap_at_server_time(&mut *database.pool().lend().await?, SystemClock.now()).await;
    let now = now.map_err(Fault::from)?;
    let states: &[&str] = if look.parked { &["running", "parked"] } else { &["running"] };
    let (mut ready, mut behind) = (Vec::new(), 0_i64);
    loop {
        let rows = sqlx::query(READY)
            .bind(worker.names())
            .bind(worker.digests())
            .bind(&dead)
            .bind(states)
            .bind(behind)
            .bind(look.paused)
            .bind(worker.queue_names())
            .bind(millis(now))
            .fetch_all(&mut *database.pool().lend().await?)
            .await
            .map_err(Fault::from)?;
        let Some(last) = rows.last() else { return Ok(ready) };
        behind = last.try_get("id").map_err(Fault::from)?;
        for row in rows.iter().filter(|row| is_due(row, now)) {
            ready.push(Ready {
                run: column(row, "run").map_err(Fault::from)?.into(),
                agent: column(row, "agent").map_err(Fault::from)?,
            });
            if ready.len() >= look.most {
                return Ok(ready);
            }
        }
    }
}

/// Returns whether a run is not parked, or is due. A run with an unreadable summary is tried.
fn is_due(row: &PgRow, now: Timestamp) -> bool {
    let parked = || decode_summary(row).ok().and_then(|summary| summary.parked);
    !matches!(decode_state(row), Ok(RunState::Parked))
        || parked().is_none_or(|(_, until)| millis(until) <= millis(now))
}

/// Returns the owners of runs and queue entries whose processes have died.
async fn dead(database: &Database) -> Result<Vec<String>, LogError> {
    let (own, _) = database.owner().get().await?;
    let pool = database.pool();
    let mut owners: HashSet<String> = ask(
        pool,
        sqlx::query_scalar(
            "SELECT owner FROM backstop.runs WHERE owner IS NOT NULL \
             UNION SELECT owner FROM backstop.queue WHERE owner IS NOT NULL",
        ),
    )
    .await?;
    owners.remove(&*own);
    let owners: Vec<Arc<str>> = owners.into_iter().map(Arc::from).collect();
    let dead = database.liveness().dead(pool, &owners, LOOK_WAIT).await?;
    Ok(dead.iter().map(|owner| owner.to_string()).collect())
}

/// Reads the ids of owners.
async fn ask(
    pool: &ConnectionPool,
    query: sqlx::query::QueryScalar<'_, sqlx::Postgres, String, sqlx::postgres::PgArguments>,
) -> Result<HashSet<String>, LogError> {
    let names = query.fetch_all(&mut *pool.lend().await?).await.map_err(Fault::from)?;
    Ok(names.into_iter().collect())
}

/// Returns entries of dead processes to the queue; those with a record are resumed from it.
async fn free_queue(pool: &ConnectionPool, dead: &[String]) -> Result<(), LogError> {
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
