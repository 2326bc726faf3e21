use async_trait::async_trait;
use backstop_error_store::{
    CountBy, ErrorCount, ErrorFilter, ErrorRecord, ErrorStats, ErrorStore, Hold, Lookup, NewError,
    Pruned, Retention, StoreError, StoredError, error_id,
};
use layer0::Timestamp;
use layer0::id::{ErrorId, RunId, SessionId};
use sqlx::{PgConnection, Row};

use crate::background;
use crate::database::Database;
use crate::expired;
use crate::fault::{Fault, sqlstate};
use crate::prune::{self, PruneStatements};
use crate::rows::{to_i64, to_u64};
use crate::text::{encode_text, read};
use crate::transact::{TransactionWork, transact};
use crate::{limits, listing};

/// Maximum number of draws for a free id; with 2^24 ids a second, even a second draw is rare.
const ID_TRIES: usize = 16;
/// Code of a conflict with an existing id or an equal error.
const UNIQUE_VIOLATION: &str = "23505";

/// The error store in a [`Database`]. Each error is a transaction of one statement; the server lets concurrent
/// transactions share a sync to disk.
#[derive(Debug, Clone)]
pub struct PostgresErrorStore(Database);

impl PostgresErrorStore {
    pub(crate) const fn new(database: Database) -> Self {
        Self(database)
    }
}

#[async_trait]
impl ErrorStore for PostgresErrorStore {
    async fn store(&self, error: NewError) -> Result<StoredError, StoreError> {
        let pool = self.0.for_writing()?;
        let origin = error.origin();
        let at = origin.at;
        check(&origin.session, &origin.run, &origin.tool, error.code().map(|code| &**code))?;
        limits::size("error", error.raw().len())?;
        let insert = Insert { fingerprint: error.fingerprint(), error };
        let stored = transact(pool, self.0.options().patience, &insert).await?;
        background::after(&self.0, at);
        Ok(stored)
    }

    async fn keep(&self, error: ErrorRecord) -> Result<(), StoreError> {
        check(error.session(), error.run(), error.tool(), error.code().map(|code| &**code))?;
        limits::name("error's id", error.id().as_str())?;
        limits::size("error", error.raw().len())?;
        keep(&self.0, &error).await
    }

    async fn keep_expired(&self, session: &SessionId, id: &ErrorId) -> Result<(), StoreError> {
        expired::expire(&self.0, session, id.as_str()).await
    }

    async fn get(
        &self,
        session: &SessionId,
        id: &ErrorId,
    ) -> Result<Lookup<ErrorRecord>, StoreError> {
        listing::error(self.0.pool(), Some(session), id).await
    }

    async fn find(&self, id: &ErrorId) -> Result<Lookup<ErrorRecord>, StoreError> {
        listing::error(self.0.pool(), None, id).await
    }

    async fn list(&self, filter: ErrorFilter) -> Result<Vec<ErrorRecord>, StoreError> {
        listing::errors(self.0.pool(), &filter).await
    }

    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        prune::prune(&self.0, &PruneStatements::ERRORS, retention, now).await
    }

    async fn stats(&self, limit: Option<u32>) -> Result<Vec<ErrorStats>, StoreError> {
        listing::stats(self.0.pool(), limit).await
    }

    async fn count(&self, filter: ErrorFilter, by: CountBy) -> Result<Vec<ErrorCount>, StoreError> {
        listing::count(self.0.pool(), &filter, by).await
    }

    fn hold(&self, session: &SessionId) -> Hold {
        self.0.upkeep().holds().hold(session)
    }
}

/// Checks the indexed texts of an error.
fn check(session: &SessionId, run: &RunId, tool: &str, code: Option<&str>) -> Result<(), Fault> {
    limits::name("session", session.as_str())?;
    limits::name("run id", run.as_str())?;
    limits::name("tool's name", tool)?;
    limits::name("error's code", code.unwrap_or_default())
}

/// An error to store: a new row, or another occurrence of an equal error in its session.
struct Insert {
    error: NewError,
    fingerprint: String,
}

#[async_trait]
impl TransactionWork for Insert {
    type Done = StoredError;
    type Error = StoreError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<StoredError, StoreError> {
        for _ in 0..ID_TRIES {
            let id = error_id(self.error.origin().at)?;
            sqlx::query("SAVEPOINT drawn").execute(&mut *connection).await.map_err(Fault::from)?;
            match self.write(connection, &id).await {
                Err(error) if sqlstate(&error).as_deref() == Some(UNIQUE_VIOLATION) => {
                    let back = sqlx::query("ROLLBACK TO SAVEPOINT drawn");
                    back.execute(&mut *connection).await.map_err(Fault::from)?;
                }
                written => return Ok(written.map_err(Fault::from)?),
            }
        }
        Err(StoreError::Failed("no free error id".into()))
    }
}

impl Insert {
    async fn write(
        &self,
        connection: &mut PgConnection,
        id: &ErrorId,
    ) -> Result<StoredError, sqlx::Error> {
        let (error, origin) = (&self.error, self.error.origin());
        let row = sqlx::query(
            "WITH met AS (INSERT INTO backstop.errors AS known (id, session, run, call_id, tool, reason, \
             code, fingerprint, occurrences, at, last_at, bytes, chars_kept, summary, raw) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, $9, $9, $10, $11, $12, $13) \
             ON CONFLICT (session, fingerprint) DO UPDATE SET occurrences = known.occurrences + 1, \
             last_at = greatest(known.last_at, excluded.last_at) RETURNING id, occurrences), \
             noted AS (INSERT INTO backstop.refers SELECT $3, id FROM met ON CONFLICT DO NOTHING) \
             SELECT id, occurrences FROM met",
        )
        .bind(id.as_str())
        .bind(&*encode_text(origin.session.as_str()))
        .bind(&*encode_text(origin.run.as_str()))
        .bind(&*encode_text(origin.call_id.as_str()))
        .bind(&*encode_text(&origin.tool))
        .bind(error.reason().as_str())
        .bind(error.code().map(|code| encode_text(code).into_owned()))
        .bind(&self.fingerprint)
        .bind(origin.at.as_millis())
        .bind(size(error.raw()))
        .bind(to_i64(error.chars_kept()))
        .bind(&*encode_text(&error.summary().text))
        .bind(&**error.raw())
        .fetch_one(connection)
        .await?;
        let occurrences = to_u64(row.try_get("occurrences")?);
        Ok(StoredError::new(read(row.try_get("id")?).into(), occurrences))
    }
}

/// Writes an error of another store. The session may already have the same error, which keeps counting; this one keeps
/// its own id all the same, because a record refers to it.
async fn keep(database: &Database, error: &ErrorRecord) -> Result<(), StoreError> {
    let mut lent = database.for_writing()?.lend().await?;
    sqlx::query(
        "WITH kept AS (INSERT INTO backstop.errors (id, session, run, call_id, tool, reason, code, \
         fingerprint, occurrences, at, last_at, bytes, chars_kept, summary, raw) \
         SELECT $1, $2, $3, $4, $5, $6, $7, CASE WHEN EXISTS \
         (SELECT 1 FROM backstop.errors WHERE fingerprint = $8 AND session = $2) THEN $1 ELSE $8 END, \
         $9, $10, $11, $12, $13, $14, $15 \
         WHERE NOT EXISTS (SELECT 1 FROM backstop.expired WHERE id = $1) ON CONFLICT DO NOTHING \
         RETURNING run, id) INSERT INTO backstop.refers SELECT run, id FROM kept ON CONFLICT DO NOTHING",
    )
    .bind(&*encode_text(error.id().as_str()))
    .bind(&*encode_text(error.session().as_str()))
    .bind(&*encode_text(error.run().as_str()))
    .bind(&*encode_text(error.call_id().as_str()))
    .bind(&*encode_text(error.tool()))
    .bind(error.reason().as_str())
    .bind(error.code().map(|code| encode_text(code).into_owned()))
    .bind(error.fingerprint())
    .bind(to_i64(error.occurrences()))
    .bind(error.at().as_millis())
    .bind(error.last_at().as_millis())
    .bind(size(error.raw()))
    .bind(to_i64(error.chars_kept()))
    .bind(&*encode_text(error.summary()))
    .bind(&**error.raw())
    .execute(&mut *lent)
    .await
    .map_err(Fault::from)?;
    Ok(lent.end().await?)
}

/// Returns the length of a text in bytes.
pub(crate) fn size(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}
