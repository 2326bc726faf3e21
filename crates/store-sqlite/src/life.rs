use backstop_error_store::StoreError;
use backstop_retention::Life;
use layer0::Timestamp;
use layer0::id::SessionId;
use sqlx::Row;
use sqlx::sqlite::SqlitePool;

use crate::fault::Fault;

/// Returns the activity of a session and of its copies.
pub(crate) async fn life(readers: &SqlitePool, session: &SessionId) -> Result<Life, StoreError> {
    let row = sqlx::query(
        "WITH RECURSIVE family (session) AS (SELECT $1 UNION SELECT lineage.session FROM lineage \
         JOIN family ON lineage.ancestor = family.session) \
         SELECT coalesce(max(state NOT IN ('finished', 'failed')), 0) AS is_open, \
         max(CASE WHEN json_valid(summary) THEN json_extract(summary, '$.finished_at') END) AS ended, \
         max(started_at) AS started FROM runs JOIN family ON runs.session = family.session",
    )
    .bind(session.as_str())
    .fetch_one(readers)
    .await
    .map_err(Fault::from)?;
    let ended: Option<String> = row.try_get("ended").map_err(Fault::from)?;
    let started: Option<i64> = row.try_get("started").map_err(Fault::from)?;
    let ended = ended.and_then(|text| text.parse().ok());
    Ok(Life {
        is_open: row.try_get::<i64, _>("is_open").map_err(Fault::from)? != 0,
        ended_at: ended.max(started.map(Timestamp::from_millis)),
    })
}
