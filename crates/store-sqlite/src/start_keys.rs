//! Keys that identify a repeated start.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use backstop_event_log::{KeyBinding, StartKey};
use layer0::Timestamp;
use layer0::id::RunId;
use sqlx::{Row, SqliteConnection};

use crate::chore::Chore;
use crate::job_error::JobError;

/// Binds a key, or finds its earlier binding.
pub(crate) struct Bind {
    key: StartKey,
    run: RunId,
    at: Timestamp,
    /// The result, since a chore returns only a number.
    bound: Mutex<KeyBinding>,
}

#[async_trait]
impl Chore for Bind {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let bound = sqlx::query(
            "INSERT INTO start_keys (operator, key, input, run, at) SELECT $1, $2, $3, $4, $5 \
             WHERE NOT EXISTS (SELECT 1 FROM start_keys WHERE operator = $1 AND key = $6) \
             ON CONFLICT DO NOTHING",
        )
        .bind(&self.key.operator)
        .bind(self.key.digest())
        .bind(&self.key.input)
        .bind(self.run.as_str())
        .bind(self.at.as_millis())
        .bind(self.key.plain())
        .execute(&mut *connection)
        .await?;
        let answer = match bound.rows_affected() {
            0 => self.find_earlier(connection).await?,
            _ => KeyBinding::New,
        };
        *self.bound.lock().unwrap_or_else(PoisonError::into_inner) = answer;
        Ok(bound.rows_affected())
    }
}

impl Bind {
    pub(crate) fn new(key: &StartKey, run: &RunId, at: Timestamp) -> Self {
        Self { key: key.clone(), run: run.clone(), at, bound: Mutex::new(KeyBinding::New) }
    }

    /// Returns the result, once the chore was performed.
    pub(crate) fn bound(&self) -> KeyBinding {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the earlier binding of the key.
    async fn find_earlier(
        &self,
        connection: &mut SqliteConnection,
    ) -> Result<KeyBinding, JobError> {
        let row = sqlx::query(
            "SELECT input, run, removed FROM start_keys WHERE operator = $1 AND key IN ($2, $3)",
        )
        .bind(&self.key.operator)
        .bind(self.key.digest())
        .bind(self.key.plain())
        .fetch_one(connection)
        .await?;
        if let Some(differs) = self.key.difference_from(row.try_get("input")?) {
            return Ok(KeyBinding::Reused(differs));
        }
        let run = row.try_get::<String, _>("run")?.into();
        Ok(match row.try_get("removed")? {
            true => KeyBinding::Removed(run),
            false => KeyBinding::Earlier(run),
        })
    }
}

/// Keeps the keys of a removed run, so that it is not started again. Keys that an older version stored as text are
/// replaced by their digests.
pub(crate) async fn keep_removed(
    connection: &mut SqliteConnection,
    run: &str,
) -> Result<(), JobError> {
    let keys: Vec<(String, String)> =
        sqlx::query_as("SELECT operator, key FROM start_keys WHERE run = $1")
            .bind(run)
            .fetch_all(&mut *connection)
            .await?;
    for (operator, key) in keys {
        sqlx::query(
            "UPDATE OR REPLACE start_keys SET removed = TRUE, key = $3 WHERE operator = $1 AND key = $2",
        )
        .bind(operator)
        .bind(&key)
        .bind(StartKey::kept_digest(&key))
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// Removes some of the expired keys whose run is not here, and returns their number.
pub(crate) struct ExpireKeys(pub(crate) Timestamp);

#[async_trait]
impl Chore for ExpireKeys {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let gone = sqlx::query(
            "DELETE FROM start_keys WHERE (operator, key) IN (SELECT operator, key FROM start_keys AS old \
             WHERE at <= $1 AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.run = old.run) LIMIT 256)",
        )
        .bind(StartKey::kept_since(self.0).as_millis())
        .execute(connection)
        .await?;
        Ok(gone.rows_affected())
    }
}
