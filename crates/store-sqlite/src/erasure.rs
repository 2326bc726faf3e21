//! Erasure of events.

use async_trait::async_trait;
use backstop_error_store::StoreError;
use backstop_event_log::{LogError, LogKey, Payload};
use layer0::event::Hash;
use layer0::id::RunId;
use layer0::read_value;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use crate::chore::Chore;
use crate::database::Database;
use crate::fault::Fault;
use crate::job_error::JobError;
use crate::rows::{chain, decode_hash, decode_payload, to_i64, to_u64};
use crate::seals;

/// Number of failure messages that one transaction erases.
const BATCH: usize = 64;

/// Erases the payload and the salt of an event, in the file too, together with the texts of its call and behaviours'
/// failure messages about its run. Returns the runs that contain a copy. The run must be claimed.
pub(crate) async fn erase(
    database: &Database,
    run: &RunId,
    seq: u64,
) -> Result<Vec<RunId>, LogError> {
    let row = sqlx::query(chain!(
        "SELECT chain.*, runs.run AS owner, runs.session AS session, CASE WHEN json_valid(summary) \
         THEN json_extract(summary, '$.key_id') END AS key_id \
         FROM chain JOIN runs ON runs.id = chain.run_id WHERE seq = $2"
    ))
    .bind(run.as_str())
    .bind(to_i64(seq))
    .fetch_optional(database.readers())
    .await
    .map_err(Fault::from)?;
    let row = row.ok_or(LogError::not_erasable(seq, "the run has no such event"))?;
    let event =
        ErasedEvent::read(database, &row)?.ok_or(LogError::not_erasable(seq, "it has no salt"))?;
    let session: String = row.try_get("session").map_err(Fault::from)?;
    let call = match decode_payload(&row, seq)? {
        Payload::Salted(_, text) => call_in(&text),
        _ => None,
    };
    let failures = failures_about(database, run.as_str()).await?;
    let hash = event.hash;
    let key = event.seal.and(database.log_key()).cloned();
    let erasure =
        Erasure { events: vec![event], of: Some(Erased { run: run.clone(), seq, call, key }) };
    let writer = database.for_writing()?;
    writer.perform(erasure).await?;
    erase_all(database, failures).await?;
    database.clear_traces(Some(run)).await?;
    copies_with(database, &session, seq, hash).await
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
    let runs: Vec<String> = sqlx::query_scalar(
        "WITH RECURSIVE family (session) AS (SELECT $1 UNION SELECT lineage.session \
         FROM lineage JOIN family ON lineage.ancestor = family.session) \
         SELECT run FROM family JOIN runs ON runs.session = family.session \
         WHERE family.session <> $1 ORDER BY run",
    )
    .bind(session)
    .fetch_all(database.readers())
    .await
    .map_err(Fault::from)?;
    let mut copies = Vec::new();
    for run in runs {
        let copied: Option<i64> = sqlx::query_scalar(chain!(
            "SELECT 1 FROM chain WHERE seq = $2 AND hash = $3 AND erased IS NULL"
        ))
        .bind(&run)
        .bind(to_i64(seq))
        .bind(&hash.0[..])
        .fetch_optional(database.readers())
        .await
        .map_err(Fault::from)?;
        copies.extend(copied.map(|_| RunId::from(run)));
    }
    Ok(copies)
}

/// An event to erase.
#[derive(Debug)]
pub(crate) struct ErasedEvent {
    id: i64,
    run_id: i64,
    seq: u64,
    hash: Hash,
    digest: Hash,
    /// HMAC of the erasure if the run is sealed with a key.
    seal: Option<Hash>,
}

impl ErasedEvent {
    /// Decodes an event with the run and its key, in the columns `owner` and `key_id`; `None` for an event without a
    /// salt, which cannot be erased.
    ///
    /// # Errors
    ///
    /// [`LogError::KeyMissing`] if the run is sealed with a key that the database does not have.
    fn read(database: &Database, row: &SqliteRow) -> Result<Option<Self>, LogError> {
        let seq = to_u64(row.try_get("seq").map_err(Fault::from)?);
        let Some(digest) = decode_payload(row, seq)?.digest() else { return Ok(None) };
        let hash = decode_hash(row, "hash", seq)?;
        let run = RunId::from(row.try_get::<String, _>("owner").map_err(Fault::from)?);
        let key_id: Option<String> = row.try_get("key_id").map_err(Fault::from)?;
        let key = database.key_named(key_id.as_deref())?;
        let seal = key.map(|key: &LogKey| key.seal_erasure(&run, seq, &hash, &digest));
        let id = row.try_get("id").map_err(Fault::from)?;
        let run_id = row.try_get("run_id").map_err(Fault::from)?;
        Ok(Some(Self { id, run_id, seq, hash, digest, seal }))
    }

    async fn erase(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let erased = sqlx::query(
            "UPDATE events SET data = '', salt = NULL, erased = $3 WHERE id = $1 AND hash = $2",
        )
        .bind(self.id)
        .bind(&self.hash.0[..])
        .bind(&self.digest.0[..])
        .execute(&mut *connection)
        .await?;
        if let (Some(seal), 1..) = (&self.seal, erased.rows_affected()) {
            sqlx::query("INSERT OR REPLACE INTO erasures (run_id, seq, seal) VALUES ($1, $2, $3)")
                .bind(self.run_id)
                .bind(to_i64(self.seq))
                .bind(&seal.0[..])
                .execute(connection)
                .await?;
        }
        Ok(erased.rows_affected())
    }
}

/// Reads the events with behaviours' failure messages about a run.
pub(crate) async fn failures_about(
    database: &Database,
    run: &str,
) -> Result<Vec<ErasedEvent>, LogError> {
    let rows = sqlx::query(
        "SELECT events.*, runs.run AS owner, CASE WHEN json_valid(summary) \
         THEN json_extract(summary, '$.key_id') END AS key_id FROM delivery_failures AS failures \
         JOIN events ON events.id = failures.event AND events.type = 'behavior.failed' \
         AND events.erased IS NULL JOIN runs ON runs.id = events.run_id \
         WHERE failures.run = $1 ORDER BY events.id",
    )
    .bind(run)
    .fetch_all(database.readers())
    .await
    .map_err(Fault::from)?;
    let read = |row| ErasedEvent::read(database, row).transpose();
    rows.iter().filter_map(read).collect()
}

/// Reads those about removed runs: a process died in between, or the delivery ended after its run was removed.
pub(crate) async fn failures_left(database: &Database) -> Result<Vec<ErasedEvent>, LogError> {
    let runs: Vec<String> = sqlx::query_scalar(
        "SELECT DISTINCT failures.run FROM delivery_failures AS failures JOIN events \
         ON events.id = failures.event AND events.erased IS NULL \
         WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.run = failures.run)",
    )
    .fetch_all(database.readers())
    .await
    .map_err(Fault::from)?;
    let mut left = Vec::new();
    for run in runs {
        left.extend(failures_about(database, &run).await?);
    }
    Ok(left)
}

/// Erases events in batches.
pub(crate) async fn erase_all(
    database: &Database,
    mut events: Vec<ErasedEvent>,
) -> Result<(), StoreError> {
    while !events.is_empty() {
        let rest = events.split_off(events.len().min(BATCH));
        database.for_writing()?.perform(Erasure { events, of: None }).await?;
        events = rest;
    }
    Ok(())
}

/// Erases the texts of events, and leaves their digests.
struct Erasure {
    events: Vec<ErasedEvent>,
    /// The event that a person named, if any.
    of: Option<Erased>,
}

/// An event that a person named. With the first event of a run its labels are erased, and with an event of a call the
/// texts of the call.
struct Erased {
    run: RunId,
    seq: u64,
    call: Option<String>,
    /// The key of the run.
    key: Option<LogKey>,
}

#[async_trait]
impl Chore for Erasure {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let mut erased = 0;
        for event in &self.events {
            erased += event.erase(&mut *connection).await?;
        }
        if let (Some(of), 1..) = (&self.of, erased) {
            of.erase_rest(connection).await?;
        }
        Ok(erased)
    }
}

impl Erased {
    async fn erase_rest(&self, connection: &mut SqliteConnection) -> Result<(), JobError> {
        if let Some(call) = &self.call {
            sqlx::query(
                "DELETE FROM state WHERE scope = 'run:' || $1 AND key >= 'once/' AND key < 'once0' \
                 AND json_extract(value, '$.call_id') = $2",
            )
            .bind(self.run.as_str())
            .bind(call)
            .execute(&mut *connection)
            .await?;
        }
        if self.seq > 1 {
            return Ok(());
        }
        for statement in [
            "DELETE FROM labels WHERE run_id = (SELECT id FROM runs WHERE run = $1)",
            "UPDATE runs SET labels = NULL WHERE run = $1",
        ] {
            sqlx::query(statement).bind(self.run.as_str()).execute(&mut *connection).await?;
        }
        match &self.key {
            Some(key) => seals::seal_row(connection, &self.run, key).await,
            None => Ok(()),
        }
    }
}
