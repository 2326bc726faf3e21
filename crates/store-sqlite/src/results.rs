mod insert;

use async_trait::async_trait;
use backstop_error_store::{
    Hold, Lookup, NewResult, Origin, Pruned, ResultEntry, ResultFilter, ResultRecord, ResultStore,
    Retention, StoreError,
};
use layer0::Timestamp;
use layer0::id::{ResultId, SessionId};
use sqlx::{Row, SqliteConnection};

use crate::background;
use crate::chore::Chore;
use crate::database::Database;
use crate::expired::Expire;
use crate::fault::Fault;
use crate::job_error::JobError;
use crate::listing::{self, look_up_removed};
use crate::prune::{self, PruneStatements};

pub(crate) use insert::write;

/// The store of large results in a [`Database`].
#[derive(Debug, Clone)]
pub struct SqliteResultStore(Database);

impl SqliteResultStore {
    pub(crate) const fn new(database: Database) -> Self {
        Self(database)
    }

    async fn read(
        &self,
        session: Option<&SessionId>,
        id: &ResultId,
    ) -> Result<Lookup<ResultRecord>, StoreError> {
        let row =
            sqlx::query("SELECT session, run, call_id, tool, at, body FROM results WHERE id = $1")
                .bind(id.as_str())
                .fetch_optional(self.0.readers())
                .await
                .map_err(Fault::from)?;
        let Some(row) = row else {
            return look_up_removed(self.0.readers(), session, id.as_str()).await;
        };
        let text = |column: &str| row.try_get::<String, _>(column).map_err(Fault::from);
        let of: SessionId = text("session")?.into();
        if session.is_some_and(|session| *session != of) {
            return Ok(Lookup::Missing);
        }
        let at = Timestamp::from_millis(row.try_get("at").map_err(Fault::from)?);
        let origin = Origin::new(at, of, text("run")?, text("call_id")?, text("tool")?);
        Ok(Lookup::Found(ResultRecord::new(id.clone(), origin, text("body")?)))
    }
}

#[async_trait]
impl ResultStore for SqliteResultStore {
    async fn put(&self, result: NewResult) -> Result<ResultId, StoreError> {
        let at = result.origin().at;
        let id = self.0.for_writing()?.put(result).await?;
        background::after(&self.0, at);
        Ok(id)
    }

    async fn keep(&self, result: ResultRecord) -> Result<(), StoreError> {
        self.0.for_writing()?.perform(KeepResult(result)).await.map(drop)
    }

    async fn keep_expired(&self, session: &SessionId, id: &ResultId) -> Result<(), StoreError> {
        let expired = Expire::new(session, id.as_str());
        self.0.for_writing()?.perform(expired).await.map(drop)
    }

    async fn get(
        &self,
        session: &SessionId,
        id: &ResultId,
    ) -> Result<Lookup<ResultRecord>, StoreError> {
        self.read(Some(session), id).await
    }

    async fn find(&self, id: &ResultId) -> Result<Lookup<ResultRecord>, StoreError> {
        self.read(None, id).await
    }

    async fn list(&self, filter: ResultFilter) -> Result<Vec<ResultEntry>, StoreError> {
        listing::results(self.0.readers(), &filter).await
    }

    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        prune::prune(&self.0, &PruneStatements::RESULTS, retention, now).await
    }

    fn hold(&self, session: &SessionId) -> Hold {
        self.0.upkeep().holds().hold(session)
    }
}

/// Writes a result of another store.
struct KeepResult(ResultRecord);

#[async_trait]
impl Chore for KeepResult {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let ResultRecord { id, origin, body, .. } = &self.0;
        insert::insert(connection, id, origin, body).await.map(u64::from)
    }
}
