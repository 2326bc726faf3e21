//! Erasing what one event says.

use async_trait::async_trait;
use backstop_event_log::LogError;
use layer0::event::Hash;
use layer0::id::RunId;
use sqlx::{PgConnection, Row};

use crate::database::Database;
use crate::fault::Fault;
use crate::rows::{hash_of, payload_of, run_of, signed};
use crate::text::stored;
use crate::transact::{Work, transact};

/// Erases the payload and the salt of an event, and returns the runs that hold a copy of it. The run is claimed.
/// What the server keeps of the old row goes with the next vacuum, and with its old write-ahead log and backups.
pub(crate) async fn erase(
    database: &Database,
    run: &RunId,
    seq: u64,
) -> Result<Vec<RunId>, LogError> {
    let row = sqlx::query(
        "SELECT events.* FROM backstop.events AS events JOIN backstop.runs AS runs \
         ON runs.id = events.run_id WHERE runs.run = $1 AND events.seq = $2",
    )
    .bind(&*stored(run.as_str()))
    .bind(signed(seq))
    .fetch_optional(&mut *database.pool().lend().await?)
    .await
    .map_err(Fault::from)?;
    let row = row.ok_or(LogError::not_erasable(seq, "the run has no such event"))?;
    let digest = payload_of(&row, seq)?.digest();
    let digest = digest.ok_or(LogError::not_erasable(seq, "it has no salt"))?;
    let hash = hash_of(&row, "hash", seq)?;
    let run_id: i64 = row.try_get("run_id").map_err(Fault::from)?;
    let erasure = Erasure { run_id, seq, hash, digest };
    transact(database.for_writing()?, database.options().patience, &erasure).await?;
    let copies = sqlx::query(
        "SELECT runs.run FROM backstop.events AS events JOIN backstop.runs AS runs \
         ON runs.id = events.run_id WHERE events.seq = $1 AND events.hash = $2 \
         AND events.erased IS NULL ORDER BY runs.run",
    )
    .bind(signed(seq))
    .bind(&hash.0[..])
    .fetch_all(&mut *database.pool().lend().await?)
    .await
    .map_err(Fault::from)?;
    copies.iter().map(run_of).collect()
}

/// Takes the text of an event away, and leaves its digest; with the first event of a run go the labels that it says. The
/// row of the run is locked first: a copy that is under way is done before, and named, or sees what was erased.
struct Erasure {
    run_id: i64,
    seq: u64,
    hash: Hash,
    digest: Hash,
}

#[async_trait]
impl Work for Erasure {
    type Done = ();
    type Error = LogError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<(), LogError> {
        sqlx::query("SELECT 1 FROM backstop.runs WHERE id = $1 FOR UPDATE")
            .bind(self.run_id)
            .execute(&mut *connection)
            .await
            .map_err(Fault::from)?;
        sqlx::query(
            "WITH erased AS (UPDATE backstop.events SET data = '', salt = NULL, erased = $4 \
             WHERE run_id = $1 AND seq = $2 AND hash = $3 RETURNING run_id, seq) \
             DELETE FROM backstop.attempts USING erased \
             WHERE attempts.run_id = erased.run_id AND attempts.seq = erased.seq",
        )
        .bind(self.run_id)
        .bind(signed(self.seq))
        .bind(&self.hash.0[..])
        .bind(&self.digest.0[..])
        .execute(&mut *connection)
        .await
        .map_err(Fault::from)?;
        if self.seq > 1 {
            return Ok(());
        }
        for statement in [
            "UPDATE backstop.runs SET labels = NULL WHERE id = $1",
            "DELETE FROM backstop.labels WHERE run_id = $1",
        ] {
            sqlx::query(statement)
                .bind(self.run_id)
                .execute(&mut *connection)
                .await
                .map_err(Fault::from)?;
        }
        Ok(())
    }
}
