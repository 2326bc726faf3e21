//! Open runs that no live worker can resume.

use backstop_event_log::LogError;
use layer0::Timestamp;
use layer0::id::RunId;
use serde::Serialize;
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::fault::Fault;
use crate::pool::ConnectionPool;
use crate::runs::SEGMENTS;
use crate::text::{column, optional};

/// An open run whose agent no live worker has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StrandedRun {
    /// The run.
    pub run: RunId,
    /// Its agent.
    pub agent: String,
    /// Digest of the agent's definition.
    pub digest: Option<String>,
    /// Time of its start.
    pub started_at: Timestamp,
    /// Time of its last event.
    pub since: Timestamp,
}

/// Open root runs without a live process, whose agent no live worker has, in databases with workers: a run of the
/// queue, or any run of a database in which a worker was announced. Rows of gone workers are removed by a live worker,
/// which has a row itself, so that there is always a row once a worker was announced.
const STRANDED: &str = "SELECT runs.run, runs.agent, runs.digest, runs.started_at, \
    coalesce(last.at, runs.started_at) AS since FROM backstop.runs \
    LEFT JOIN backstop.events AS last ON last.run_id = runs.id AND last.seq = runs.last_seq \
    WHERE runs.parent IS NULL AND runs.state IN ('running', 'waiting_approval', 'parked') \
    AND runs.run NOT LIKE $1 \
    AND (EXISTS (SELECT FROM backstop.workers) \
        OR EXISTS (SELECT FROM backstop.queue WHERE queue.run = runs.run)) \
    AND (runs.owner IS NULL OR NOT EXISTS (SELECT FROM backstop.processes \
        WHERE processes.id = runs.owner AND lease_until > clock_timestamp())) \
    AND NOT EXISTS (SELECT FROM backstop.workers JOIN backstop.processes ON processes.id = workers.process \
        AND processes.lease_until > clock_timestamp() \
        CROSS JOIN LATERAL unnest(workers.agents, workers.digests) AS agents (name, digest) \
        WHERE agents.name = runs.agent AND (agents.digest = '' OR agents.digest = runs.digest)) \
    ORDER BY runs.id";

pub(super) async fn list_stranded(pool: &ConnectionPool) -> Result<Vec<StrandedRun>, LogError> {
    let rows = sqlx::query(STRANDED)
        .bind(SEGMENTS)
        .fetch_all(&mut *pool.lend().await?)
        .await
        .map_err(Fault::from)?;
    rows.iter().map(read).collect()
}

fn read(row: &PgRow) -> Result<StrandedRun, LogError> {
    let time = |name| row.try_get(name).map(Timestamp::from_millis).map_err(Fault::from);
    Ok(StrandedRun {
        run: column(row, "run").map_err(Fault::from)?.into(),
        agent: column(row, "agent").map_err(Fault::from)?,
        digest: optional(row, "digest").map_err(Fault::from)?,
        started_at: time("started_at")?,
        since: time("since")?,
    })
}
