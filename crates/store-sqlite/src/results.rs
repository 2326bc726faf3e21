use async_trait::async_trait;
use error_store::{NewResult, ResultRecord, ResultStore, Retention, StoreError, result_id};
use layer0::Timestamp;
use layer0::id::{ResultId, SessionId};
use sqlx::{Row, SqliteConnection};

use crate::database::Database;
use crate::fault::Fault;
use crate::writer::{JobError, Kept};

/// How often an id that is taken is drawn again.
const ID_TRIES: usize = 16;

/// The store of large results in a [`Database`].
#[derive(Debug, Clone)]
pub struct SqliteResultStore(Database);

impl SqliteResultStore {
    pub(crate) const fn new(database: Database) -> Self {
        Self(database)
    }
}

#[async_trait]
impl ResultStore for SqliteResultStore {
    async fn put(&self, result: NewResult) -> Result<ResultId, StoreError> {
        match self.0.writer() {
            Some(writer) => writer.put(result).await,
            None => Err(StoreError::Failed("the database was opened for reading".into())),
        }
    }

    async fn keep(&self, result: ResultRecord) -> Result<(), StoreError> {
        match self.0.writer() {
            Some(writer) => writer.keep(Kept::Result(Box::new(result))).await,
            None => Err(StoreError::Failed("the database was opened for reading".into())),
        }
    }

    async fn get(
        &self,
        session: Option<&SessionId>,
        id: &ResultId,
    ) -> Result<Option<ResultRecord>, StoreError> {
        let row = sqlx::query(
            "SELECT id, session, run, call_id, tool, at, body FROM results \
             WHERE id = $1 AND ($2 IS NULL OR session = $2)",
        )
        .bind(id.as_str())
        .bind(session.map(|session| session.as_str().to_owned()))
        .fetch_optional(self.0.readers())
        .await
        .map_err(Fault::from)?;
        let Some(row) = row else { return Ok(None) };
        let text = |column: &str| row.try_get::<String, _>(column).map_err(Fault::from);
        Ok(Some(ResultRecord {
            id: text("id")?.into(),
            at: Timestamp::from_millis(row.try_get("at").map_err(Fault::from)?),
            session: text("session")?.into(),
            run: text("run")?.into(),
            call_id: text("call_id")?.into(),
            tool: text("tool")?.into(),
            body: row.try_get("body").map_err(Fault::from)?,
        }))
    }
}

/// Writes a result inside a transaction.
pub(crate) async fn write(
    connection: &mut SqliteConnection,
    result: &NewResult,
) -> Result<ResultId, JobError> {
    for _ in 0..ID_TRIES {
        let id = result_id(result.at).map_err(JobError::Store)?;
        let written = sqlx::query(
            "INSERT INTO results (id, session, run, call_id, tool, at, body) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING",
        )
        .bind(id.as_str())
        .bind(result.session.as_str())
        .bind(result.run.as_str())
        .bind(result.call_id.as_str())
        .bind(&*result.tool)
        .bind(result.at.as_millis())
        .bind(&result.body)
        .execute(&mut *connection)
        .await?;
        if written.rows_affected() == 1 {
            return Ok(id);
        }
    }
    Err(JobError::Store(StoreError::Failed("no free result id".into())))
}

/// Writes a result of another store inside a transaction.
pub(crate) async fn keep(
    connection: &mut SqliteConnection,
    result: &ResultRecord,
) -> Result<(), JobError> {
    sqlx::query(
        "INSERT INTO results (id, session, run, call_id, tool, at, body) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING",
    )
    .bind(result.id.as_str())
    .bind(result.session.as_str())
    .bind(result.run.as_str())
    .bind(result.call_id.as_str())
    .bind(&*result.tool)
    .bind(result.at.as_millis())
    .bind(&result.body)
    .execute(connection)
    .await?;
    Ok(())
}

/// Takes away the bodies of runs that have ended and are older than what is kept.
pub(crate) async fn expire(
    connection: &mut SqliteConnection,
    retention: Retention,
    now: Timestamp,
) -> Result<(), JobError> {
    let Some(age) = retention.max_age else { return Ok(()) };
    let oldest = now.as_millis().saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
    sqlx::query(
        "UPDATE results SET body = NULL WHERE at < $1 AND body IS NOT NULL AND session NOT IN \
         (SELECT session FROM runs WHERE json_extract(summary, '$.finished_at') IS NULL)",
    )
    .bind(oldest)
    .execute(connection)
    .await?;
    Ok(())
}
