//! Rows of runs for decisions about removal.

use backstop_error_store::StoreError;
use backstop_event_log::RunState;
use backstop_retention::{OldRun, PAGE, RunRow};
use layer0::Timestamp;
use layer0::id::{RunId, SessionId};
use serde_json::json;
use sqlx::Row;
use sqlx::sqlite::{SqlitePool, SqliteRow};

use crate::fault::Fault;

/// Reads the rows of some runs, the last started first.
macro_rules! rows_of {
    ($from:literal) => {
        concat!(
            "SELECT id, runs.run, session, state, earlier, last_seq, started_at, \
             CASE WHEN parent IN (SELECT run FROM runs) THEN parent ELSE coalesce(root, parent) END AS parent, \
             CASE WHEN json_valid(summary) THEN json_extract(summary, '$.finished_at') END AS ended FROM ",
            $from,
            " ORDER BY started_at DESC, id DESC"
        )
    };
}

/// The run ids `$1` and the runs connected with them. Each one is looked up by an index, and once.
const CONNECTED: &str = concat!(
    "WITH RECURSIVE connected (run) AS (SELECT value FROM json_each($1) \
     UNION SELECT parent FROM connected JOIN runs ON runs.run = connected.run WHERE parent IS NOT NULL \
     UNION SELECT root FROM connected JOIN runs ON runs.run = connected.run WHERE root IS NOT NULL \
     UNION SELECT earlier FROM connected JOIN follows ON follows.run = connected.run \
     UNION SELECT runs.run FROM connected JOIN runs ON runs.parent = connected.run \
     UNION SELECT runs.run FROM connected JOIN runs ON runs.root = connected.run \
     UNION SELECT follows.run FROM connected JOIN follows ON follows.earlier = connected.run) ",
    rows_of!(
        "connected CROSS JOIN runs ON runs.run = connected.run LEFT JOIN follows ON follows.run = runs.run"
    )
);

const OF_SESSIONS: &str = rows_of!(
    "runs LEFT JOIN follows ON follows.run = runs.run WHERE session IN (SELECT value FROM json_each($1))"
);

const OLD: &str = "SELECT id, run, started_at FROM runs WHERE started_at < $1 \
    AND started_at >= $2 AND (started_at > $2 OR id > $3) \
    AND +state IN (SELECT value FROM json_each($4)) ORDER BY started_at, id LIMIT $5";

/// Reads a page of runs of these states that started before `until`.
pub(crate) async fn old(
    readers: &SqlitePool,
    until: Timestamp,
    states: &[RunState],
    after: Option<&OldRun>,
) -> Result<Vec<OldRun>, StoreError> {
    let states: Vec<&str> = states.iter().map(|state| state.as_str()).collect();
    let behind = after.map_or((i64::MIN, i64::MIN), |old| (old.started_at.as_millis(), old.id));
    let rows = sqlx::query(OLD)
        .bind(until.as_millis())
        .bind(behind.0)
        .bind(behind.1)
        .bind(json!(states).to_string())
        .bind(i64::from(PAGE))
        .fetch_all(readers)
        .await
        .map_err(Fault::from)?;
    let read = |row: &SqliteRow| {
        let started_at = Timestamp::from_millis(row.try_get("started_at")?);
        Ok(OldRun {
            id: row.try_get("id")?,
            run: row.try_get::<String, _>("run")?.into(),
            started_at,
        })
    };
    let rows: Result<_, sqlx::Error> = rows.iter().map(read).collect();
    Ok(rows.map_err(Fault::from)?)
}

/// Reads the rows of runs and of the runs connected with them.
pub(crate) async fn read_connected(
    readers: &SqlitePool,
    runs: &[RunId],
) -> Result<Vec<RunRow>, StoreError> {
    rows(readers, CONNECTED, runs.iter().map(RunId::as_str)).await
}

/// Reads the rows of the runs of sessions.
pub(crate) async fn of_sessions(
    readers: &SqlitePool,
    sessions: &[SessionId],
) -> Result<Vec<RunRow>, StoreError> {
    rows(readers, OF_SESSIONS, sessions.iter().map(SessionId::as_str)).await
}

async fn rows(
    readers: &SqlitePool,
    statement: &'static str,
    names: impl Iterator<Item = &str>,
) -> Result<Vec<RunRow>, StoreError> {
    let names: Vec<&str> = names.collect();
    let rows = sqlx::query(statement).bind(json!(names).to_string()).fetch_all(readers).await;
    let rows = rows.map_err(Fault::from)?;
    let read = |row: &SqliteRow| {
        let started = Timestamp::from_millis(row.try_get("started_at")?);
        let ended: Option<String> = row.try_get("ended")?;
        Ok(RunRow {
            id: row.try_get("id")?,
            run: row.try_get::<String, _>("run")?.into(),
            session: row.try_get::<String, _>("session")?.into(),
            state: row.try_get("state")?,
            parent: row.try_get::<Option<String>, _>("parent")?.map(Into::into),
            follows: row.try_get::<Option<String>, _>("earlier")?.map(Into::into),
            last_seq: row.try_get("last_seq")?,
            ended_at: ended.and_then(|text| text.parse().ok()).unwrap_or(started),
        })
    };
    let rows: Result<_, sqlx::Error> = rows.iter().map(read).collect();
    Ok(rows.map_err(Fault::from)?)
}

/// Reads the rows of segments, each with the time of its last event.
pub(crate) async fn segments(readers: &SqlitePool) -> Result<Vec<RunRow>, StoreError> {
    let rows = sqlx::query(
        "SELECT runs.id, runs.run, session, state, last_seq, events.at AS ended FROM runs \
         JOIN events ON events.id = runs.last_event WHERE runs.run GLOB 'sub_*'",
    )
    .fetch_all(readers)
    .await
    .map_err(Fault::from)?;
    let read = |row: &SqliteRow| {
        Ok(RunRow {
            id: row.try_get("id")?,
            run: row.try_get::<String, _>("run")?.into(),
            session: row.try_get::<String, _>("session")?.into(),
            state: row.try_get("state")?,
            parent: None,
            follows: None,
            last_seq: row.try_get("last_seq")?,
            ended_at: Timestamp::from_millis(row.try_get("ended")?),
        })
    };
    let rows: Result<_, sqlx::Error> = rows.iter().map(read).collect();
    Ok(rows.map_err(Fault::from)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::Database;
    use crate::plan::plan;

    /// Spec: S10
    #[tokio::test]
    async fn rows_are_read_by_an_index() {
        let database = Database::in_memory().await.unwrap();
        for statement in [OLD, CONNECTED, OF_SESSIONS] {
            let plan = plan(&database, statement).await;
            let scans = |line: &String| {
                line.starts_with("SCAN")
                    && !line.contains("connected")
                    && !line.contains("json_each")
            };
            assert!(!plan.iter().any(scans), "{plan:?}");
        }
        let plan = plan(&database, OLD).await;
        assert!(plan.iter().any(|line| line.contains("runs_by_start")), "{plan:?}");
        assert!(!plan.iter().any(|line| line.contains("TEMP B-TREE")), "{plan:?}");
    }
}
