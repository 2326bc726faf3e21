//! The ids of removed errors and results.

use async_trait::async_trait;
use backstop_retention::expired_until;
use layer0::Timestamp;
use layer0::id::SessionId;
use sqlx::SqliteConnection;

use crate::chore::Chore;
use crate::job_error::JobError;

/// Records that a stored id was removed.
pub(crate) struct Expire {
    session: SessionId,
    id: String,
}

impl Expire {
    pub(crate) fn new(session: &SessionId, id: &str) -> Self {
        Self { session: session.clone(), id: id.to_owned() }
    }
}

#[async_trait]
impl Chore for Expire {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let there: Option<i64> = sqlx::query_scalar(
            "SELECT 1 FROM errors WHERE id = $1 UNION ALL SELECT 1 FROM results WHERE id = $1",
        )
        .bind(&self.id)
        .fetch_optional(&mut *connection)
        .await?;
        if there.is_some() {
            return Ok(0);
        }
        expire(connection, &self.id, self.session.as_str()).await?;
        Ok(1)
    }
}

/// Records that an id was removed.
pub(crate) async fn expire(
    connection: &mut SqliteConnection,
    id: &str,
    session: &str,
) -> Result<(), JobError> {
    sqlx::query(
        "INSERT INTO expired (id, session, at) VALUES ($1, $2, unixepoch() * 1000) \
         ON CONFLICT DO NOTHING",
    )
    .bind(id)
    .bind(session)
    .execute(connection)
    .await?;
    Ok(())
}

/// Removes some of the ids and incarnations that were removed long ago, and returns how many.
pub(crate) struct ForgetExpired(pub(crate) Timestamp);

#[async_trait]
impl Chore for ForgetExpired {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let until = expired_until(self.0).as_millis();
        let mut gone = 0;
        for statement in [
            "DELETE FROM expired WHERE id IN (SELECT id FROM expired WHERE at < $1 LIMIT 256)",
            "DELETE FROM removed_incarnations WHERE incarnation IN \
             (SELECT incarnation FROM removed_incarnations WHERE at < $1 LIMIT 256)",
        ] {
            let done = sqlx::query(statement).bind(until).execute(&mut *connection).await?;
            gone += done.rows_affected();
        }
        Ok(gone)
    }
}

#[cfg(test)]
mod tests {
    use sqlx::Connection;

    use super::*;

    /// Spec: S10
    #[tokio::test]
    async fn ids_expired_long_ago_are_forgotten() {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        let day = 24 * 60 * 60 * 1_000;
        let table = "CREATE TABLE expired (id TEXT PRIMARY KEY, session TEXT NOT NULL, at INTEGER NOT NULL); \
            INSERT INTO expired VALUES ('old', 's', 0), ('new', 's', 86400000); \
            CREATE TABLE removed_incarnations (incarnation BLOB PRIMARY KEY, at INTEGER NOT NULL); \
            INSERT INTO removed_incarnations VALUES (x'00', 0), (x'01', 86400000)";
        sqlx::raw_sql(table).execute(&mut connection).await.unwrap();
        let now = Timestamp::from_millis(366 * day);
        assert_eq!(ForgetExpired(now).perform(&mut connection).await.ok(), Some(2));
        let left: Vec<String> =
            sqlx::query_scalar("SELECT id FROM expired").fetch_all(&mut connection).await.unwrap();
        assert_eq!(left, ["new"]);
        let left: Vec<Vec<u8>> = sqlx::query_scalar("SELECT incarnation FROM removed_incarnations")
            .fetch_all(&mut connection)
            .await
            .unwrap();
        assert_eq!(left, [[1]]);
    }
}
