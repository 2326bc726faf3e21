use async_trait::async_trait;
use backstop_error_store::{
    Hold, Lookup, NewResult, Origin, Pruned, ResultEntry, ResultFilter, ResultRecord, ResultStore,
    Retention, StoreError, result_id,
};
use layer0::Timestamp;
use layer0::id::{ResultId, SessionId};
use sqlx::{PgConnection, Row};

use crate::background;
use crate::database::Database;
use crate::errors::size;
use crate::expired;
use crate::fault::Fault;
use crate::limits;
use crate::listing::{self, look_up_removed};
use crate::prune::{self, PruneStatements};
use crate::text::{column, encode_text};
use crate::transact::{TransactionWork, transact};

/// Maximum number of draws for a free id.
const ID_TRIES: usize = 16;

/// The store of large results in a [`Database`].
#[derive(Debug, Clone)]
pub struct PostgresResultStore(Database);

impl PostgresResultStore {
    pub(crate) const fn new(database: Database) -> Self {
        Self(database)
    }

    async fn read(
        &self,
        session: Option<&SessionId>,
        id: &ResultId,
    ) -> Result<Lookup<ResultRecord>, StoreError> {
        let row = sqlx::query(
            "SELECT session, run, call_id, tool, at, body FROM backstop.results WHERE id = $1",
        )
        .bind(&*encode_text(id.as_str()))
        .fetch_optional(&mut *self.0.pool().lend().await?)
        .await
        .map_err(Fault::from)?;
        let Some(row) = row else {
            return look_up_removed(self.0.pool(), session, id.as_str()).await;
        };
        let text = |name: &str| column(&row, name).map_err(Fault::from);
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
impl ResultStore for PostgresResultStore {
    async fn put(&self, result: NewResult) -> Result<ResultId, StoreError> {
        let pool = self.0.for_writing()?;
        let at = result.origin().at;
        let id = transact(pool, self.0.options().patience, &Put(result)).await?;
        background::after(&self.0, at);
        Ok(id)
    }

    async fn keep(&self, result: ResultRecord) -> Result<(), StoreError> {
        let mut lent = self.0.for_writing()?.lend().await?;
        let ResultRecord { id, origin, body, .. } = &result;
        insert(&mut lent, id, origin, body).await?;
        Ok(lent.end().await?)
    }

    async fn keep_expired(&self, session: &SessionId, id: &ResultId) -> Result<(), StoreError> {
        expired::expire(&self.0, session, id.as_str()).await
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
        listing::results(self.0.pool(), &filter).await
    }

    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        prune::prune(&self.0, &PruneStatements::RESULTS, retention, now).await
    }

    fn hold(&self, session: &SessionId) -> Hold {
        self.0.upkeep().holds().hold(session)
    }
}

/// A result to store.
struct Put(NewResult);

#[async_trait]
impl TransactionWork for Put {
    type Done = ResultId;
    type Error = StoreError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<ResultId, StoreError> {
        for _ in 0..ID_TRIES {
            let id = result_id(self.0.origin().at)?;
            if insert(connection, &id, self.0.origin(), self.0.body()).await? {
                return Ok(id);
            }
        }
        Err(StoreError::Failed("no free result id".into()))
    }
}

async fn insert(
    connection: &mut PgConnection,
    id: &ResultId,
    origin: &Origin,
    body: &str,
) -> Result<bool, StoreError> {
    limits::name("result's id", id.as_str())?;
    limits::name("session", origin.session.as_str())?;
    limits::name("run id", origin.run.as_str())?;
    limits::size("result", body.len())?;
    let written: i64 = sqlx::query_scalar(
        "WITH put AS (INSERT INTO backstop.results (id, session, run, call_id, tool, at, bytes, body) \
         SELECT $1, $2, $3, $4, $5, $6, $7, $8 \
         WHERE NOT EXISTS (SELECT 1 FROM backstop.expired WHERE id = $1) \
         ON CONFLICT (id) DO NOTHING RETURNING run, id), \
         noted AS (INSERT INTO backstop.refers SELECT run, id FROM put ON CONFLICT DO NOTHING) \
         SELECT count(*) FROM put",
    )
    .bind(&*encode_text(id.as_str()))
    .bind(&*encode_text(origin.session.as_str()))
    .bind(&*encode_text(origin.run.as_str()))
    .bind(&*encode_text(origin.call_id.as_str()))
    .bind(&*encode_text(&origin.tool))
    .bind(origin.at.as_millis())
    .bind(size(body))
    .bind(&*encode_text(body))
    .fetch_one(connection)
    .await
    .map_err(Fault::from)?;
    Ok(written == 1)
}
