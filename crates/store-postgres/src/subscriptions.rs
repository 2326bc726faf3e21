//! State of subscriptions.

use backstop_event_log::{LogError, Moves, Subscription, segment_id};
use layer0::id::RunId;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use crate::fault::Fault;
use crate::pool::ConnectionPool;
use crate::rows::{decode_run_id, to_i64, to_u64};
use crate::text::{self, encode_text};

/// Moves a subscription, in the transaction of an append to its segment.
///
/// # Errors
///
/// [`LogError::Conflict`] if another host has started a later segment; the transaction must not be committed.
pub(crate) async fn take(connection: &mut PgConnection, moves: &Moves) -> Result<(), LogError> {
    let Moves { name, pattern, segment, cursor, positions, .. } = moves;
    let moved = sqlx::query(
        "INSERT INTO backstop.subscriptions AS known (name, pattern, segment, cursor) \
         VALUES ($1, $2, $3, coalesce($4, 'start')) ON CONFLICT (name) DO UPDATE \
         SET pattern = $2, segment = $3, cursor = coalesce($4, known.cursor) \
         WHERE known.segment = $3 OR known.segment = $3 - 1",
    )
    .bind(&*encode_text(name))
    .bind(&*encode_text(pattern))
    .bind(to_i64(*segment))
    .bind(cursor.map(|cursor| cursor.to_string()))
    .execute(&mut *connection)
    .await
    .map_err(Fault::from)?;
    if moved.rows_affected() == 0 {
        return Err(LogError::conflict(segment_id(name, *segment), 0));
    }
    let at = |run: &RunId| encode_text(run.as_str()).into_owned();
    let (runs, seqs): (Vec<String>, Vec<i64>) =
        positions.iter().filter_map(|(run, seq)| Some((at(run), to_i64((*seq)?)))).unzip();
    if !runs.is_empty() {
        sqlx::query(
            "INSERT INTO backstop.positions (subscription, run, seq) \
             SELECT $1, new.run, new.seq FROM unnest($2::text[], $3::bigint[]) AS new (run, seq) \
             ON CONFLICT (subscription, run) DO UPDATE SET seq = excluded.seq",
        )
        .bind(&*encode_text(name))
        .bind(runs)
        .bind(seqs)
        .execute(&mut *connection)
        .await
        .map_err(Fault::from)?;
    }
    let gone: Vec<String> =
        positions.iter().filter(|(_, seq)| seq.is_none()).map(|(run, _)| at(run)).collect();
    if !gone.is_empty() {
        sqlx::query("DELETE FROM backstop.positions WHERE subscription = $1 AND run = ANY($2)")
            .bind(&*encode_text(name))
            .bind(gone)
            .execute(connection)
            .await
            .map_err(Fault::from)?;
    }
    Ok(())
}

/// Reads one subscription.
pub(crate) async fn find(
    readers: &ConnectionPool,
    name: &str,
) -> Result<Option<Subscription>, LogError> {
    let row = sqlx::query("SELECT * FROM backstop.subscriptions WHERE name = $1")
        .bind(&*encode_text(name))
        .fetch_optional(&mut *readers.lend().await?)
        .await
        .map_err(Fault::from)?;
    let Some(row) = row else { return Ok(None) };
    let mut subscription = subscription(&row)?;
    let positions = sqlx::query("SELECT run, seq FROM backstop.positions WHERE subscription = $1")
        .bind(&*encode_text(name))
        .fetch_all(&mut *readers.lend().await?)
        .await
        .map_err(Fault::from)?;
    for row in positions {
        let seq = to_u64(row.try_get("seq").map_err(Fault::from)?);
        subscription.positions.insert(decode_run_id(&row)?, seq);
    }
    Ok(Some(subscription))
}

/// Lists all subscriptions, without the positions of their runs.
pub(crate) async fn all(readers: &ConnectionPool) -> Result<Vec<Subscription>, LogError> {
    let rows = sqlx::query("SELECT * FROM backstop.subscriptions ORDER BY name");
    rows.fetch_all(&mut *readers.lend().await?)
        .await
        .map_err(Fault::from)?
        .iter()
        .map(subscription)
        .collect()
}

fn subscription(row: &PgRow) -> Result<Subscription, LogError> {
    let text = |column| text::column(row, column).map_err(Fault::from);
    let segment = to_u64(row.try_get("segment").map_err(Fault::from)?);
    let cursor = text("cursor")?.parse().map_err(|error| LogError::Failed(Box::new(error)))?;
    Ok(Subscription::new(text("name")?, text("pattern")?, segment, cursor))
}
