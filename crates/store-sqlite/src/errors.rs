mod insert;

use async_trait::async_trait;
use backstop_error_store::{
    CountBy, ErrorCount, ErrorFilter, ErrorRecord, ErrorStats, ErrorStore, Hold, Lookup, NewError,
    Pruned, Retention, StoreError, StoredError,
};
use layer0::Timestamp;
use layer0::id::{ErrorId, SessionId};
use sqlx::SqliteConnection;

use crate::chore::Chore;
use crate::database::Database;
use crate::expired::Expire;
use crate::job_error::JobError;
use crate::prune::{self, PruneStatements};
use crate::{background, listing};

pub(crate) use insert::{Insert, len_to_i64, write};

/// The error store in a [`Database`].
#[derive(Debug, Clone)]
pub struct SqliteErrorStore(Database);

impl SqliteErrorStore {
    pub(crate) const fn new(database: Database) -> Self {
        Self(database)
    }
}

#[async_trait]
impl ErrorStore for SqliteErrorStore {
    async fn store(&self, error: NewError) -> Result<StoredError, StoreError> {
        let at = error.origin().at;
        let stored = self.0.for_writing()?.store(error).await?;
        background::after(&self.0, at);
        Ok(stored)
    }

    async fn keep(&self, error: ErrorRecord) -> Result<(), StoreError> {
        self.0.for_writing()?.perform(KeepError(error)).await.map(drop)
    }

    async fn keep_expired(&self, session: &SessionId, id: &ErrorId) -> Result<(), StoreError> {
        let expired = Expire::new(session, id.as_str());
        self.0.for_writing()?.perform(expired).await.map(drop)
    }

    async fn get(
        &self,
        session: &SessionId,
        id: &ErrorId,
    ) -> Result<Lookup<ErrorRecord>, StoreError> {
        listing::error(self.0.readers(), Some(session), id).await
    }

    async fn find(&self, id: &ErrorId) -> Result<Lookup<ErrorRecord>, StoreError> {
        listing::error(self.0.readers(), None, id).await
    }

    async fn list(&self, filter: ErrorFilter) -> Result<Vec<ErrorRecord>, StoreError> {
        listing::errors(self.0.readers(), &filter).await
    }

    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        prune::prune(&self.0, &PruneStatements::ERRORS, retention, now).await
    }

    async fn stats(&self, limit: Option<u32>) -> Result<Vec<ErrorStats>, StoreError> {
        listing::stats(self.0.readers(), limit).await
    }

    async fn count(&self, filter: ErrorFilter, by: CountBy) -> Result<Vec<ErrorCount>, StoreError> {
        listing::count(self.0.readers(), &filter, by).await
    }

    fn hold(&self, session: &SessionId) -> Hold {
        self.0.upkeep().holds().hold(session)
    }
}

/// Writes an error of another store. The session may already have the same error, which keeps counting; this one keeps
/// its own id all the same, because a record refers to it.
struct KeepError(ErrorRecord);

#[async_trait]
impl Chore for KeepError {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let error = &self.0;
        let written = sqlx::query(
            "INSERT INTO errors (id, session, run, call_id, tool, reason, code, fingerprint, \
             occurrences, at, last_at, bytes, chars_kept, summary, raw) \
             SELECT $1, $2, $3, $4, $5, $6, $7, \
             CASE WHEN EXISTS (SELECT 1 FROM errors WHERE fingerprint = $8 AND session = $2) \
             THEN $1 ELSE $8 END, $9, $10, $11, $12, $13, $14, $15 \
             WHERE NOT EXISTS (SELECT 1 FROM expired WHERE id = $1) ON CONFLICT DO NOTHING",
        )
        .bind(error.id().as_str())
        .bind(error.session().as_str())
        .bind(error.run().as_str())
        .bind(error.call_id().as_str())
        .bind(&**error.tool())
        .bind(error.reason().as_str())
        .bind(error.code().map(|code| &**code))
        .bind(error.fingerprint())
        .bind(i64::try_from(error.occurrences()).unwrap_or(i64::MAX))
        .bind(error.at().as_millis())
        .bind(error.last_at().as_millis())
        .bind(len_to_i64(error.raw().len()))
        .bind(i64::try_from(error.chars_kept()).unwrap_or(i64::MAX))
        .bind(error.summary())
        .bind(&**error.raw())
        .execute(connection)
        .await?;
        Ok(written.rows_affected())
    }
}
