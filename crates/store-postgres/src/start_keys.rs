//! Keys that identify a repeated start.

use async_trait::async_trait;
use backstop_event_log::{KeyBinding, LogError, StartKey};
use layer0::Timestamp;
use layer0::id::RunId;
use sqlx::{PgConnection, Row};

use crate::fault::Fault;
use crate::pool::ConnectionPool;
use crate::server_time::server_ms;
use crate::text::{column, encode_text};
use crate::transact::TransactionWork;

/// Binds a key, or finds its earlier binding.
pub(crate) struct Bind<'a> {
    pub(crate) key: &'a StartKey,
    pub(crate) run: &'a RunId,
    pub(crate) now: Timestamp,
}

#[async_trait]
impl TransactionWork for Bind<'_> {
    type Done = KeyBinding;
    type Error = LogError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<KeyBinding, LogError> {
        Ok(bind(connection, self.key, self.run, Some(self.now)).await?)
    }
}

/// Binds a key in a transaction, at a time or at the server's own, or returns its earlier binding. Waits for a
/// transaction that has bound the same key.
pub(crate) async fn bind(
    connection: &mut PgConnection,
    key: &StartKey,
    run: &RunId,
    at: Option<Timestamp>,
) -> Result<KeyBinding, Fault> {
    loop {
        let bound = sqlx::query(concat!(
            "INSERT INTO backstop.start_keys (agent, key, input, run, at) \
             SELECT $1, $2, $3, $4, coalesce($5, ",
            server_ms!(),
            ") WHERE NOT EXISTS (SELECT 1 FROM backstop.start_keys WHERE agent = $1 AND key = $6) \
             ON CONFLICT (agent, key) DO NOTHING",
        ))
        .bind(&*encode_text(&key.operator))
        .bind(key.digest())
        .bind(&key.input)
        .bind(&*encode_text(run.as_str()))
        .bind(at.map(Timestamp::as_millis))
        .bind(encode_text(key.plain()))
        .execute(&mut *connection)
        .await?;
        if bound.rows_affected() > 0 {
            return Ok(KeyBinding::New);
        }
        // An expired key may have been removed meanwhile.
        if let Some(found) = find(connection, key).await? {
            return Ok(found);
        }
    }
}

/// Returns the binding of a key. Until the transaction ends, the key does not expire, and its run is not removed.
async fn find(connection: &mut PgConnection, key: &StartKey) -> Result<Option<KeyBinding>, Fault> {
    let row = sqlx::query(
        "SELECT input, run, removed, EXISTS (SELECT 1 FROM backstop.queue WHERE queue.run = keys.run AND refused IS NULL) \
         AND NOT EXISTS (SELECT 1 FROM backstop.runs WHERE runs.run = keys.run) AS is_queued \
         FROM backstop.start_keys AS keys WHERE agent = $1 AND key IN ($2, $3) FOR SHARE",
    )
    .bind(&*encode_text(&key.operator))
    .bind(key.digest())
    .bind(encode_text(key.plain()))
    .fetch_optional(connection)
    .await?;
    let Some(row) = row else { return Ok(None) };
    if let Some(differs) = key.difference_from(row.try_get("input")?) {
        return Ok(Some(KeyBinding::Reused(differs)));
    }
    let run = column(&row, "run")?.into();
    let (is_removed, is_queued) = (row.try_get("removed")?, row.try_get("is_queued")?);
    Ok(Some(match (is_removed, is_queued) {
        (true, _) => KeyBinding::Removed(run),
        (false, true) => KeyBinding::Queued(run),
        (false, false) => KeyBinding::Earlier(run),
    }))
}

/// Removes the expired keys whose run is not here, in batches.
pub(crate) async fn expire(pool: &ConnectionPool, now: Timestamp) -> Result<(), Fault> {
    loop {
        let mut lent = pool.lend().await?;
        let gone = sqlx::query(
            "DELETE FROM backstop.start_keys WHERE (agent, key) IN \
             (SELECT agent, key FROM backstop.start_keys AS old WHERE at <= $1 \
             AND NOT EXISTS (SELECT 1 FROM backstop.runs WHERE runs.run = old.run) \
             AND NOT EXISTS (SELECT 1 FROM backstop.queue WHERE queue.run = old.run) \
             LIMIT 256 FOR UPDATE SKIP LOCKED)",
        )
        .bind(StartKey::kept_since(now).as_millis())
        .execute(&mut *lent)
        .await?;
        lent.end().await?;
        if gone.rows_affected() == 0 {
            return Ok(());
        }
    }
}
