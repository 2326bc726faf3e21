//! Erasing what one event says.

use async_trait::async_trait;
use backstop_error_store::StoreError;
use backstop_event_log::LogError;
use layer0::event::Hash;
use layer0::id::RunId;
use sqlx::{Row, SqliteConnection};

use crate::chore::Chore;
use crate::database::Database;
use crate::fault::Fault;
use crate::job_error::JobError;
use crate::rows::{chain, signed};
use crate::rows::{hash_of, payload_of};

/// Erases the payload and the salt of an event, in the file too, and returns the runs that hold a copy of
/// it. The run is claimed.
pub(crate) async fn erase(
    database: &Database,
    run: &RunId,
    seq: u64,
) -> Result<Vec<RunId>, LogError> {
    let row = sqlx::query(chain!("SELECT id, hash, data, salt, erased FROM chain WHERE seq = $2"))
        .bind(run.as_str())
        .bind(signed(seq))
        .fetch_optional(database.readers())
        .await
        .map_err(Fault::from)?;
    let row = row.ok_or(LogError::not_erasable(seq, "the run has no such event"))?;
    let digest = payload_of(&row, seq)?.digest();
    let digest = digest.ok_or(LogError::not_erasable(seq, "it has no salt"))?;
    let hash = hash_of(&row, "hash", seq)?;
    let event = row.try_get("id").map_err(Fault::from)?;
    let failed = |error: StoreError| LogError::Failed(error.into());
    let writer = database.for_writing().map_err(failed)?;
    writer.perform(Erasure { run: run.clone(), seq, event, hash, digest }).await.map_err(failed)?;
    // The write-ahead log still holds what the event said.
    database.checkpoint().await.map_err(failed)?;
    let copies: Vec<String> = sqlx::query_scalar(
        "SELECT run FROM events JOIN runs ON runs.id = events.run_id \
         WHERE hash = $1 AND erased IS NULL ORDER BY run",
    )
    .bind(&hash.0[..])
    .fetch_all(database.readers())
    .await
    .map_err(Fault::from)?;
    Ok(copies.into_iter().map(Into::into).collect())
}

/// Takes the text of an event away, and leaves its digest; with the first event of a run go the labels that it says.
struct Erasure {
    run: RunId,
    seq: u64,
    event: i64,
    hash: Hash,
    digest: Hash,
}

#[async_trait]
impl Chore for Erasure {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let erased = sqlx::query(
            "UPDATE events SET data = '', salt = NULL, erased = $3 WHERE id = $1 AND hash = $2",
        )
        .bind(self.event)
        .bind(&self.hash.0[..])
        .bind(&self.digest.0[..])
        .execute(&mut *connection)
        .await?;
        if self.seq == 1 && erased.rows_affected() > 0 {
            for statement in [
                "DELETE FROM labels WHERE run_id = (SELECT id FROM runs WHERE run = $1)",
                "UPDATE runs SET labels = NULL WHERE run = $1",
            ] {
                sqlx::query(statement).bind(self.run.as_str()).execute(&mut *connection).await?;
            }
        }
        Ok(erased.rows_affected())
    }
}
