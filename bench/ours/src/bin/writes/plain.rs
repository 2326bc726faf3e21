//! What is compared with: a transaction for each write, on one connection behind a lock.

use std::path::Path;

use backstop::error_store::{NewError, error_id};
use backstop::event_log::Batch;
use backstop::{Database, Durability};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tokio::sync::Mutex;

/// How many writes the limit puts into one transaction.
const AT_ONCE: usize = 256;

/// One connection, with the schema and the pragmas of a [`Database`].
pub(crate) struct Plain(Mutex<SqliteConnection>);

impl Plain {
    pub(crate) async fn open(path: &Path, durability: Durability) -> Self {
        let database = Database::open(path, durability).await.expect("a new file opens");
        database.close().await;
        let connection = SqliteConnectOptions::new()
            .filename(path)
            .foreign_keys(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(match durability {
                Durability::Full => SqliteSynchronous::Full,
                _ => SqliteSynchronous::Normal,
            })
            .disable_statement_logging()
            .connect()
            .await;
        Self(Mutex::new(connection.expect("the file is there")))
    }

    /// Appends one event to a run that is there or begins with it.
    pub(crate) async fn append(&self, batch: Batch) {
        self.try_append(&batch).await.expect("nothing fails");
    }

    async fn try_append(&self, batch: &Batch) -> Result<(), sqlx::Error> {
        let mut connection = self.0.lock().await;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        Self::insert_event(&mut transaction, batch).await?;
        transaction.commit().await
    }

    /// Appends as fast as one writer can: so many in a transaction, with nothing around it.
    pub(crate) async fn append_all(&self, batches: &[Batch]) -> Result<(), sqlx::Error> {
        let mut connection = self.0.lock().await;
        for batches in batches.chunks(AT_ONCE) {
            let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
            for batch in batches {
                Self::insert_event(&mut transaction, batch).await?;
            }
            transaction.commit().await?;
        }
        Ok(())
    }

    /// Stores errors as fast as one writer can.
    pub(crate) async fn store_all(&self, errors: &[NewError]) -> Result<(), sqlx::Error> {
        let mut connection = self.0.lock().await;
        for errors in errors.chunks(AT_ONCE) {
            let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
            for error in errors {
                Self::insert_error(&mut transaction, error).await?;
            }
            transaction.commit().await?;
        }
        Ok(())
    }

    async fn insert_event(
        transaction: &mut SqliteConnection,
        batch: &Batch,
    ) -> Result<(), sqlx::Error> {
        let (record, run) = (&batch.records[0], &batch.summary);
        let summary = serde_json::to_string(run).expect("a summary serialises");
        let head = if record.seq == 1 {
            "INSERT INTO runs (run, session, started_at, last_seq, head, summary, state) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id"
        } else {
            "UPDATE runs SET last_seq = $4, head = $5, summary = $6 WHERE session = $2 AND \
             started_at = $3 AND state = $7 AND run = $1 AND last_seq = $4 - 1 RETURNING id"
        };
        let id: i64 = sqlx::query_scalar(head)
            .bind(run.run.as_str())
            .bind(run.session.as_str())
            .bind(run.started_at.as_millis())
            .bind(signed(run.last_seq))
            .bind(&run.head.0[..])
            .bind(summary)
            .bind(run.state.as_str())
            .fetch_one(&mut *transaction)
            .await?;
        sqlx::query(
            "INSERT INTO events (prev, run_id, seq, at, type, actor, caused_by, schema, data, hash, salt) \
             VALUES ((SELECT last_event FROM runs WHERE id = $1), $1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        )
        .bind(id)
        .bind(signed(record.seq))
        .bind(record.at.as_millis())
        .bind(&*record.event_type)
        .bind(record.actor.as_str())
        .bind(record.caused_by.map(signed))
        .bind(i64::from(record.schema))
        .bind(record.payload.text())
        .bind(&record.hash.0[..])
        .bind(record.payload.salt().map(|salt| salt.0.to_vec()))
        .execute(&mut *transaction)
        .await
        .map(drop)
    }

    /// Stores an error.
    pub(crate) async fn store(&self, error: NewError) {
        self.try_store(&error).await.expect("nothing fails");
    }

    async fn try_store(&self, error: &NewError) -> Result<(), sqlx::Error> {
        let mut connection = self.0.lock().await;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        Self::insert_error(&mut transaction, error).await?;
        transaction.commit().await
    }

    async fn insert_error(
        transaction: &mut SqliteConnection,
        error: &NewError,
    ) -> Result<(), sqlx::Error> {
        let origin = error.origin();
        let id = error_id(origin.at).expect("the system has randomness");
        sqlx::query(
            "INSERT INTO errors (id, session, run, call_id, tool, reason, code, fingerprint, \
             occurrences, at, last_at, bytes, chars_kept, summary, raw) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, $9, $9, $10, $11, $12, $13) \
             ON CONFLICT (fingerprint, session) DO UPDATE SET occurrences = occurrences + 1, \
             last_at = excluded.last_at ON CONFLICT (id) DO NOTHING RETURNING id, occurrences",
        )
        .bind(id.as_str())
        .bind(origin.session.as_str())
        .bind(origin.run.as_str())
        .bind(origin.call_id.as_str())
        .bind(&*origin.tool)
        .bind(error.reason().as_str())
        .bind(error.code().map(|code| &**code))
        .bind(error.fingerprint())
        .bind(origin.at.as_millis())
        .bind(i64::try_from(error.raw().len()).unwrap_or(i64::MAX))
        .bind(signed(error.chars_kept()))
        .bind(&error.summary().text)
        .bind(&**error.raw())
        .fetch_optional(&mut *transaction)
        .await
        .map(drop)
    }
}

pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
