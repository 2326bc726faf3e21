//! Rows of runs for decisions about removal.

use backstop_error_store::StoreError;
use backstop_event_log::RunState;
use backstop_retention::{OldRun, PAGE, RunRow};
use layer0::Timestamp;
use layer0::id::{RunId, SessionId};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::fault::Fault;
use crate::pool::ConnectionPool;
use crate::text::{column, encode_text, optional};

/// Selects the columns of a run's row from a table or query with the columns of `runs`, the last started first. The
/// caller is a scalar subquery: for `EXISTS` the server may materialise all runs.
macro_rules! rows_from {
    ($from:literal) => {
        concat!(
            "SELECT id, run, session, state, earlier, last_seq, coalesce(ended_at, started_at) AS ended, \
             coalesce((SELECT caller.run FROM backstop.runs AS caller WHERE caller.run = runs.parent), root, parent) \
             AS parent FROM ",
            $from,
            " ORDER BY started_at DESC, id DESC"
        )
    };
}

/// Selects the columns of `runs` that [`rows_from`] reads, with a condition.
macro_rules! runs {
    ($which:literal) => {
        concat!(
            "SELECT id, run, session, state, earlier, last_seq, started_at, ended_at, root, parent \
             FROM backstop.runs WHERE ",
            $which
        )
    };
}

/// The runs `$1` and the runs connected with them. Each one is looked up by an index, and once.
const CONNECTED: &str = concat!(
    "WITH RECURSIVE connected AS (",
    runs!("run = ANY($1)"),
    " UNION SELECT next.* FROM connected CROSS JOIN LATERAL (",
    runs!("run = connected.parent"),
    " UNION ALL ",
    runs!("run = connected.root"),
    " UNION ALL ",
    runs!("run = connected.earlier"),
    " UNION ALL ",
    runs!("parent = connected.run"),
    " UNION ALL ",
    runs!("root = connected.run"),
    " UNION ALL ",
    runs!("earlier = connected.run"),
    ") AS next) ",
    rows_from!("connected AS runs")
);

/// Reads a page of runs of these states that started before `until`.
pub(crate) async fn old(
    pool: &ConnectionPool,
    until: Timestamp,
    states: &[RunState],
    after: Option<&OldRun>,
) -> Result<Vec<OldRun>, StoreError> {
    let states: Vec<&str> = states.iter().map(|state| state.as_str()).collect();
    let behind = after.map_or((i64::MIN, i64::MIN), |old| (old.started_at.as_millis(), old.id));
    let rows = sqlx::query(
        "SELECT id, run, started_at FROM backstop.runs WHERE started_at < $1 AND (started_at, id) > ($2, $3) \
         AND state = ANY($4) ORDER BY started_at, id LIMIT $5",
    )
    .bind(until.as_millis())
    .bind(behind.0)
    .bind(behind.1)
    .bind(states)
    .bind(i64::from(PAGE))
    .fetch_all(&mut *pool.lend().await?)
    .await
    .map_err(Fault::from)?;
    let read = |row: &PgRow| {
        let started_at = Timestamp::from_millis(row.try_get("started_at")?);
        Ok(OldRun { id: row.try_get("id")?, run: column(row, "run")?.into(), started_at })
    };
    let rows: Result<_, sqlx::Error> = rows.iter().map(read).collect();
    Ok(rows.map_err(Fault::from)?)
}

/// Reads the rows of runs and of the runs connected with them.
pub(crate) async fn read_connected(
    pool: &ConnectionPool,
    runs: &[RunId],
) -> Result<Vec<RunRow>, StoreError> {
    rows(pool, CONNECTED, runs.iter().map(RunId::as_str)).await
}

/// Reads the rows of the runs of sessions.
pub(crate) async fn of_sessions(
    pool: &ConnectionPool,
    sessions: &[SessionId],
) -> Result<Vec<RunRow>, StoreError> {
    let of_sessions = rows_from!("backstop.runs AS runs WHERE session = ANY($1)");
    rows(pool, of_sessions, sessions.iter().map(SessionId::as_str)).await
}

async fn rows(
    pool: &ConnectionPool,
    statement: &'static str,
    names: impl Iterator<Item = &str>,
) -> Result<Vec<RunRow>, StoreError> {
    let names: Vec<String> = names.map(|name| encode_text(name).into_owned()).collect();
    let rows = sqlx::query(statement).bind(names).fetch_all(&mut *pool.lend().await?).await;
    rows.map_err(Fault::from)?.iter().map(decode_run_row).collect()
}

/// Reads the rows of segments of subscriptions, each with the time of its last event.
pub(crate) async fn segments(pool: &ConnectionPool) -> Result<Vec<RunRow>, StoreError> {
    let rows = sqlx::query(
        "SELECT id, run, session, state, last_seq, NULL::text AS parent, NULL::text AS earlier, \
         (SELECT at FROM backstop.events WHERE run_id = id AND seq = last_seq) AS ended \
         FROM backstop.runs WHERE run LIKE 'sub\\_%'",
    )
    .fetch_all(&mut *pool.lend().await?)
    .await
    .map_err(Fault::from)?;
    rows.iter().map(decode_run_row).collect()
}

fn decode_run_row(row: &PgRow) -> Result<RunRow, StoreError> {
    let read = || {
        let ended: Option<i64> = row.try_get("ended")?;
        Ok(RunRow {
            id: row.try_get("id")?,
            run: column(row, "run")?.into(),
            session: column(row, "session")?.into(),
            state: row.try_get("state")?,
            parent: optional(row, "parent")?.map(Into::into),
            follows: optional(row, "earlier")?.map(Into::into),
            last_seq: row.try_get("last_seq")?,
            ended_at: Timestamp::from_millis(ended.unwrap_or_default()),
        })
    };
    let row: Result<_, sqlx::Error> = read();
    Ok(row.map_err(Fault::from)?)
}
