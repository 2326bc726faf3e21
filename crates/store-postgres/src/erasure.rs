//! Erasure of events.

use async_trait::async_trait;
use backstop_event_log::{LogError, LogKey, Payload};
use layer0::event::Hash;
use layer0::id::RunId;
use layer0::read_value;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use crate::database::Database;
use crate::fault::Fault;
use crate::pool::ConnectionPool;
use crate::rows::{decode_hash, decode_payload, decode_run_id, to_i64, to_u64};
use crate::seals;
use crate::text::{column, encode_text};
use crate::transact::{TransactionWork, transact};

/// Number of failure messages that one transaction erases.
const BATCH: usize = 64;

/// Erases the payload and the salt of an event, with the texts of its call and behaviours' failure messages about its
/// run. Returns the runs that contain a copy.
///
/// The run must be claimed. The server removes the old row with the next vacuum, and with its old write-ahead log and
/// backups.
pub(crate) async fn erase(
    database: &Database,
    run: &RunId,
    seq: u64,
) -> Result<Vec<RunId>, LogError> {
    let row = sqlx::query(
        "SELECT events.*, runs.run, runs.session, runs.summary \
         FROM backstop.events AS events JOIN backstop.runs AS runs \
         ON runs.id = events.run_id WHERE runs.run = $1 AND events.seq = $2",
    )
    .bind(&*encode_text(run.as_str()))
    .bind(to_i64(seq))
    .fetch_optional(&mut *database.pool().lend().await?)
    .await
    .map_err(Fault::from)?;
    let row = row.ok_or(LogError::not_erasable(seq, "the run has no such event"))?;
    let event = ErasableEvent::read(database, &row)?
        .ok_or(LogError::not_erasable(seq, "it has no salt"))?;
    let call = match decode_payload(&row, seq)? {
        Payload::Salted(_, text) => call_in(&text),
        _ => None,
    };
    let failures = failures_about(database, run.as_str()).await?;
    let hash = event.hash;
    let key = event.seal.and(database.log_key());
    let erasure = Erasure { event: &event, run, call, key };
    transact(database.for_writing()?, database.options().patience, &erasure).await?;
    erase_all(database, &failures).await?;
    let session: &str = row.try_get("session").map_err(Fault::from)?;
    copies_with(database, session, seq, hash).await
}

/// Returns the call that the payload of an event names.
fn call_in(text: &str) -> Option<String> {
    let payload = read_value(text).ok()?;
    payload.get("call_id")?.as_str().map(ToOwned::to_owned)
}

/// Returns the runs with a copy of an event, in sessions that were copied from its run's session.
async fn copies_with(
    database: &Database,
    session: &str,
    seq: u64,
    hash: Hash,
) -> Result<Vec<RunId>, LogError> {
    let copies = sqlx::query(
        "WITH RECURSIVE family (session) AS (SELECT $1::text COLLATE \"C\" UNION SELECT lineage.session \
         FROM backstop.lineage AS lineage JOIN family ON lineage.ancestor = family.session) \
         SELECT runs.run FROM family JOIN backstop.runs AS runs ON runs.session = family.session \
         JOIN backstop.events AS events ON events.run_id = runs.id AND events.seq = $2 \
         WHERE family.session <> $1 AND events.hash = $3 AND events.erased IS NULL ORDER BY runs.run",
    )
    .bind(session)
    .bind(to_i64(seq))
    .bind(&hash.0[..])
    .fetch_all(&mut *database.pool().lend().await?)
    .await
    .map_err(Fault::from)?;
    copies.iter().map(decode_run_id).collect()
}

/// An event to erase.
#[derive(Debug)]
pub(crate) struct ErasableEvent {
    run_id: i64,
    seq: u64,
    hash: Hash,
    digest: Hash,
    /// HMAC of the erasure if the run is sealed with a key.
    seal: Option<Hash>,
}

impl ErasableEvent {
    /// Decodes an event with the id and the summary of its run; `None` for an event without a salt, which cannot be
    /// erased.
    ///
    /// # Errors
    ///
    /// [`LogError::KeyMissing`] if the run is sealed with a key that the database does not have.
    fn read(database: &Database, row: &PgRow) -> Result<Option<Self>, LogError> {
        let seq = to_u64(row.try_get("seq").map_err(Fault::from)?);
        let Some(digest) = decode_payload(row, seq)?.digest() else { return Ok(None) };
        let hash = decode_hash(row, "hash", seq)?;
        let summary: &str = row.try_get("summary").map_err(Fault::from)?;
        let summary = read_value(summary).unwrap_or_default();
        let key = database.key_named(summary["key_id"].as_str())?;
        let run = decode_run_id(row)?;
        let seal = key.map(|key| key.seal_erasure(&run, seq, &hash, &digest));
        let run_id = row.try_get("run_id").map_err(Fault::from)?;
        Ok(Some(Self { run_id, seq, hash, digest, seal }))
    }

    /// Erases the event, and returns whether it was unchanged since it was read.
    async fn erase(&self, connection: &mut PgConnection) -> Result<bool, LogError> {
        let erased = sqlx::query(
            "WITH erased AS (UPDATE backstop.events SET data = '', salt = NULL, erased = $4 \
             WHERE run_id = $1 AND seq = $2 AND hash = $3 RETURNING run_id, seq), \
             counted AS (DELETE FROM backstop.attempts USING erased \
             WHERE attempts.run_id = erased.run_id AND attempts.seq = erased.seq), \
             derived AS (DELETE FROM backstop.transcripts USING erased \
             WHERE transcripts.run_id = erased.run_id), \
             sealed AS (INSERT INTO backstop.erasures SELECT run_id, seq, $5::bytea FROM erased \
             WHERE $5 IS NOT NULL ON CONFLICT (run_id, seq) DO UPDATE SET seal = excluded.seal) \
             SELECT 1 FROM erased",
        )
        .bind(self.run_id)
        .bind(to_i64(self.seq))
        .bind(&self.hash.0[..])
        .bind(&self.digest.0[..])
        .bind(self.seal.as_ref().map(|seal| &seal.0[..]))
        .fetch_optional(connection)
        .await
        .map_err(Fault::from)?;
        Ok(erased.is_some())
    }
}

/// Returns the number of erased events and removed runs.
pub(crate) async fn count(pool: &ConnectionPool) -> Result<u64, LogError> {
    let erasures: i64 = sqlx::query_scalar("SELECT erasures FROM backstop.meta")
        .fetch_one(&mut *pool.lend().await?)
        .await
        .map_err(Fault::from)?;
    Ok(to_u64(erasures))
}

/// Counts an erasure or a removal. Must be the last statement of its transaction, because all processes update the same
/// row.
pub(crate) async fn count_one(connection: &mut PgConnection) -> Result<(), Fault> {
    sqlx::query("UPDATE backstop.meta SET erasures = erasures + 1").execute(connection).await?;
    Ok(())
}

/// Reads the events with behaviours' failure messages about a run.
pub(crate) async fn failures_about(
    database: &Database,
    run: &str,
) -> Result<Vec<ErasableEvent>, LogError> {
    let rows = sqlx::query(
        "SELECT events.*, runs.run, runs.summary FROM backstop.delivery_failures AS failures \
         JOIN backstop.events AS events ON events.run_id = failures.run_id AND events.seq = failures.seq \
         AND events.type = 'behavior.failed' AND events.erased IS NULL \
         JOIN backstop.runs AS runs ON runs.id = events.run_id WHERE failures.run = $1",
    )
    .bind(&*encode_text(run))
    .fetch_all(&mut *database.pool().lend().await?)
    .await
    .map_err(Fault::from)?;
    let read = |row| ErasableEvent::read(database, row).transpose();
    rows.iter().filter_map(read).collect()
}

/// Reads those about removed runs: a process died in between, or the delivery ended after its run was removed.
pub(crate) async fn failures_left(database: &Database) -> Result<Vec<ErasableEvent>, LogError> {
    let runs = sqlx::query(
        "SELECT DISTINCT failures.run FROM backstop.delivery_failures AS failures \
         JOIN backstop.events AS events ON events.run_id = failures.run_id AND events.seq = failures.seq \
         AND events.erased IS NULL \
         WHERE NOT EXISTS (SELECT 1 FROM backstop.runs WHERE runs.run = failures.run)",
    )
    .fetch_all(&mut *database.pool().lend().await?)
    .await
    .map_err(Fault::from)?;
    let mut left = Vec::new();
    for row in runs {
        let run = column(&row, "run").map_err(Fault::from)?;
        left.extend(failures_about(database, &run).await?);
    }
    Ok(left)
}

/// Erases events in batches.
pub(crate) async fn erase_all(
    database: &Database,
    events: &[ErasableEvent],
) -> Result<(), LogError> {
    for events in events.chunks(BATCH) {
        transact(database.for_writing()?, database.options().patience, &EraseSome(events)).await?;
    }
    Ok(())
}

struct EraseSome<'a>(&'a [ErasableEvent]);

#[async_trait]
impl TransactionWork for EraseSome<'_> {
    type Done = ();
    type Error = LogError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<(), LogError> {
        for event in self.0 {
            event.erase(&mut *connection).await?;
        }
        Ok(count_one(connection).await?)
    }
}

/// Erases the text of an event, and leaves its digest. With the first event of a run its labels are erased, and with an
/// event of a call the texts of the call.
///
/// The row of the run is locked first: a concurrent copy either ends before and is reported, or sees the erasure.
struct Erasure<'a> {
    event: &'a ErasableEvent,
    run: &'a RunId,
    call: Option<String>,
    /// The key of the run.
    key: Option<&'a LogKey>,
}

#[async_trait]
impl TransactionWork for Erasure<'_> {
    type Done = ();
    type Error = LogError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<(), LogError> {
        sqlx::query("SELECT 1 FROM backstop.runs WHERE id = $1 FOR UPDATE")
            .bind(self.event.run_id)
            .execute(&mut *connection)
            .await
            .map_err(Fault::from)?;
        if !self.event.erase(&mut *connection).await? {
            return Ok(());
        }
        if let Some(call) = &self.call {
            self.erase_call(&mut *connection, call).await?;
        }
        if self.event.seq == 1 {
            self.erase_labels(&mut *connection).await?;
        }
        Ok(count_one(connection).await?)
    }
}

impl Erasure<'_> {
    async fn erase_labels(&self, connection: &mut PgConnection) -> Result<(), LogError> {
        for statement in [
            "UPDATE backstop.runs SET labels = NULL WHERE id = $1",
            "DELETE FROM backstop.labels WHERE run_id = $1",
        ] {
            sqlx::query(statement)
                .bind(self.event.run_id)
                .execute(&mut *connection)
                .await
                .map_err(Fault::from)?;
        }
        let sealed = self.key.map(|key| (self.run, key));
        seals::seal_rows(connection, sealed.as_slice()).await
    }

    /// Removes the state that an idempotent call left in the scope of its run.
    async fn erase_call(&self, connection: &mut PgConnection, call: &str) -> Result<(), LogError> {
        let scope = format!("run:{}", self.run);
        let scope = encode_text(&scope);
        let rows = sqlx::query(
            "SELECT key, value FROM backstop.state WHERE scope = $1 AND key >= 'once/' AND key < 'once0'",
        )
        .bind(&*scope)
        .fetch_all(&mut *connection)
        .await
        .map_err(Fault::from)?;
        let mut keys: Vec<&str> = Vec::new();
        for row in &rows {
            let value: &str = row.try_get("value").map_err(Fault::from)?;
            let value = read_value(value).unwrap_or_default();
            if value["call_id"] == call {
                keys.push(row.try_get("key").map_err(Fault::from)?);
            }
        }
        sqlx::query("DELETE FROM backstop.state WHERE scope = $1 AND key = ANY($2)")
            .bind(&*scope)
            .bind(keys)
            .execute(connection)
            .await
            .map_err(Fault::from)?;
        Ok(())
    }
}
