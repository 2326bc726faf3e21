//! State of subscriptions.

use backstop_event_log::{LogError, Moves, Subscription, segment_id};
use layer0::id::RunId;
use serde_json::json;
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{Row, SqliteConnection};

use crate::fault::Fault;
use crate::job_error::JobError;
use crate::rows::{to_i64, to_u64};

/// Moves a subscription, in the transaction of an append to its segment.
pub(crate) async fn take(connection: &mut SqliteConnection, moves: &Moves) -> Result<(), JobError> {
    let Moves { name, pattern, segment, cursor, positions, .. } = moves;
    let moved = sqlx::query(
        "INSERT INTO subscriptions (name, pattern, segment, cursor) VALUES ($1, $2, $3, coalesce($4, 'start')) \
         ON CONFLICT (name) DO UPDATE SET pattern = $2, segment = $3, cursor = coalesce($4, cursor) \
         WHERE segment = $3 OR segment = $3 - 1",
    )
    .bind(&**name)
    .bind(&**pattern)
    .bind(to_i64(*segment))
    .bind(cursor.map(|cursor| cursor.to_string()))
    .execute(&mut *connection)
    .await?;
    if moved.rows_affected() == 0 {
        // Another host has started a later segment.
        return Err(JobError::Log(LogError::conflict(segment_id(name, *segment), 0)));
    }
    if positions.is_empty() {
        return Ok(());
    }
    let rows = positions.iter().map(|(run, seq)| json!([run, seq])).collect::<Vec<_>>();
    let rows = serde_json::Value::from(rows).to_string();
    sqlx::query(
        "INSERT INTO positions (subscription, run, seq) \
         SELECT $1, value ->> 0, value ->> 1 FROM json_each($2) WHERE value ->> 1 IS NOT NULL \
         ON CONFLICT (subscription, run) DO UPDATE SET seq = excluded.seq",
    )
    .bind(&**name)
    .bind(&*rows)
    .execute(&mut *connection)
    .await?;
    sqlx::query(
        "DELETE FROM positions WHERE subscription = $1 AND run IN \
         (SELECT value ->> 0 FROM json_each($2) WHERE value ->> 1 IS NULL)",
    )
    .bind(&**name)
    .bind(rows)
    .execute(connection)
    .await?;
    Ok(())
}

/// Reads one subscription.
pub(crate) async fn find(
    readers: &SqlitePool,
    name: &str,
) -> Result<Option<Subscription>, LogError> {
    let row = sqlx::query("SELECT * FROM subscriptions WHERE name = $1")
        .bind(name)
        .fetch_optional(readers)
        .await
        .map_err(Fault::from)?;
    let Some(row) = row else { return Ok(None) };
    let mut subscription = subscription(&row)?;
    let positions = sqlx::query("SELECT run, seq FROM positions WHERE subscription = $1")
        .bind(name)
        .fetch_all(readers)
        .await
        .map_err(Fault::from)?;
    for row in positions {
        let run: String = row.try_get("run").map_err(Fault::from)?;
        let seq = to_u64(row.try_get("seq").map_err(Fault::from)?);
        subscription.positions.insert(RunId::new(run), seq);
    }
    Ok(Some(subscription))
}

/// Lists all subscriptions, without the positions of their runs. A file of an older version has none.
pub(crate) async fn all(readers: &SqlitePool) -> Result<Vec<Subscription>, LogError> {
    let has_table: Option<i64> =
        sqlx::query_scalar("SELECT 1 FROM sqlite_schema WHERE name = 'subscriptions'")
            .fetch_optional(readers)
            .await
            .map_err(Fault::from)?;
    if has_table.is_none() {
        return Ok(Vec::new());
    }
    let rows = sqlx::query("SELECT * FROM subscriptions ORDER BY name").fetch_all(readers).await;
    rows.map_err(Fault::from)?.iter().map(subscription).collect()
}

fn subscription(row: &SqliteRow) -> Result<Subscription, LogError> {
    let text = |column| row.try_get::<String, _>(column).map_err(Fault::from);
    let segment = to_u64(row.try_get("segment").map_err(Fault::from)?);
    let cursor = text("cursor")?.parse().map_err(|error| LogError::Failed(Box::new(error)))?;
    Ok(Subscription::new(text("name")?, text("pattern")?, segment, cursor))
}
