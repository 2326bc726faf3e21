//! Queued runs that no live worker takes.

use backstop_event_log::LogError;
use serde::Serialize;
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::fault::Fault;
use crate::pool::ConnectionPool;
use crate::rows::to_u64;
use crate::text::{column, encode_text, optional};

/// Waiting runs of a queue that no live worker takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UnservedQueue {
    /// Name of the queue.
    pub queue: String,
    /// Their agent if workers take runs from the queue and none of them has the agent; `None` if no worker takes any.
    pub agent: Option<String>,
    /// Number of waiting runs, including those that are not due yet.
    pub runs: u64,
    /// Number of live workers of any queue and agent.
    pub workers: u64,
}

/// Runs that are neither started nor refused, whose queue and agent no single live worker has; or, if `$1` names a
/// queue and `$2` an agent, one run that would wait there. Runs are counted first, so that workers are compared with
/// queues and not with runs.
const UNSERVED: &str = "WITH live AS MATERIALIZED (SELECT workers.queues, workers.agents FROM backstop.workers \
        JOIN backstop.processes ON processes.id = workers.process \
        AND processes.lease_until > clock_timestamp()), \
    waiting AS (SELECT $1::text AS queue, $2::text AS agent, 1 AS runs WHERE $1 IS NOT NULL \
        UNION ALL SELECT queue, agent, count(*) FROM backstop.queue \
        WHERE $1 IS NULL AND owner IS NULL AND refused IS NULL \
        AND NOT EXISTS (SELECT FROM backstop.runs WHERE runs.run = queue.run) GROUP BY queue, agent), \
    unserved AS (SELECT queue, CASE WHEN EXISTS (SELECT FROM live WHERE waiting.queue = ANY(live.queues)) \
        THEN agent END AS agent, runs FROM waiting \
        WHERE NOT EXISTS (SELECT FROM live WHERE waiting.queue = ANY(live.queues) \
            AND waiting.agent = ANY(live.agents))) \
    SELECT queue, agent, sum(runs)::bigint AS runs, (SELECT count(*) FROM live) AS workers \
    FROM unserved GROUP BY queue, agent ORDER BY queue, agent";

/// Returns the runs that wait for no live worker; or whether a run of one queue and agent would.
pub(super) async fn list_unserved(
    pool: &ConnectionPool,
    of: Option<(&str, &str)>,
) -> Result<Vec<UnservedQueue>, LogError> {
    let (queue, agent) = of.unzip();
    let rows = sqlx::query(UNSERVED)
        .bind(queue.map(|queue| encode_text(queue).into_owned()))
        .bind(agent.map(|agent| encode_text(agent).into_owned()))
        .fetch_all(&mut *pool.lend().await?)
        .await
        .map_err(Fault::from)?;
    rows.iter().map(read).collect()
}

fn read(row: &PgRow) -> Result<UnservedQueue, LogError> {
    let count = |name| row.try_get(name).map(to_u64).map_err(Fault::from);
    Ok(UnservedQueue {
        queue: column(row, "queue").map_err(Fault::from)?,
        agent: optional(row, "agent").map_err(Fault::from)?,
        runs: count("runs")?,
        workers: count("workers")?,
    })
}
