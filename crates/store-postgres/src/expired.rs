//! The ids of removed errors and results.

use backstop_error_store::StoreError;
use backstop_retention::expired_until;
use layer0::Timestamp;
use layer0::id::SessionId;

use crate::database::Database;
use crate::fault::Fault;
use crate::pool::ConnectionPool;
use crate::text::encode_text;

/// Records that a stored id was removed.
pub(crate) async fn expire(
    database: &Database,
    session: &SessionId,
    id: &str,
) -> Result<(), StoreError> {
    let mut lent = database.for_writing()?.lend().await?;
    sqlx::query(
        "INSERT INTO backstop.expired (id, session) SELECT $1, $2 \
         WHERE NOT EXISTS (SELECT 1 FROM backstop.errors WHERE id = $1) \
         AND NOT EXISTS (SELECT 1 FROM backstop.results WHERE id = $1) ON CONFLICT DO NOTHING",
    )
    .bind(&*encode_text(id))
    .bind(&*encode_text(session.as_str()))
    .execute(&mut *lent)
    .await
    .map_err(Fault::from)?;
    Ok(lent.end().await?)
}

/// Removes the expired ids of a session, in batches.
pub(crate) async fn forget_session(
    pool: &ConnectionPool,
    session: &SessionId,
) -> Result<(), StoreError> {
    loop {
        let mut lent = pool.lend().await?;
        let gone = sqlx::query(
            "DELETE FROM backstop.expired WHERE id IN \
             (SELECT id FROM backstop.expired WHERE session = $1 LIMIT 4096)",
        )
        .bind(&*encode_text(session.as_str()))
        .execute(&mut *lent)
        .await
        .map_err(Fault::from)?;
        lent.end().await?;
        if gone.rows_affected() == 0 {
            return Ok(());
        }
    }
}

/// Deletes a batch of the ids and incarnations that were removed long ago.
const FORGOTTEN: [&str; 2] = [
    "DELETE FROM backstop.expired WHERE id IN (SELECT id FROM backstop.expired \
     WHERE at < to_timestamp($1::double precision / 1000) LIMIT 256 FOR UPDATE SKIP LOCKED)",
    "DELETE FROM backstop.removed_incarnations WHERE incarnation IN \
     (SELECT incarnation FROM backstop.removed_incarnations \
     WHERE at < to_timestamp($1::double precision / 1000) LIMIT 256 FOR UPDATE SKIP LOCKED)",
];

/// Removes the ids and incarnations that were removed long ago, in batches.
pub(crate) async fn forget(pool: &ConnectionPool, now: Timestamp) -> Result<(), StoreError> {
    let until = expired_until(now).as_millis();
    for statement in FORGOTTEN {
        loop {
            let mut lent = pool.lend().await?;
            let gone = sqlx::query(statement).bind(until).execute(&mut *lent).await;
            let gone = gone.map_err(Fault::from)?;
            lent.end().await?;
            if gone.rows_affected() == 0 {
                break;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use backstop_testkit::PostgresServer;

    use super::*;

    /// Spec: S10
    #[tokio::test]
    async fn ids_expired_long_ago_are_forgotten() {
        let Some(server) = PostgresServer::shared() else { return };
        let database = Database::connect(&server.database().await).await.unwrap();
        let pool = database.for_writing().unwrap();
        let rows = "INSERT INTO backstop.expired VALUES ('old', 's', to_timestamp(0)), ('new', 's', to_timestamp(86400)); \
            INSERT INTO backstop.removed_incarnations VALUES ('\\x00', to_timestamp(0)), ('\\x01', to_timestamp(86400))";
        sqlx::raw_sql(rows).execute(&mut *pool.lend().await.unwrap()).await.unwrap();
        forget(pool, Timestamp::from_millis(366 * 24 * 60 * 60 * 1_000)).await.unwrap();
        let left: Vec<String> = sqlx::query_scalar("SELECT id FROM backstop.expired")
            .fetch_all(&mut *pool.lend().await.unwrap())
            .await
            .unwrap();
        assert_eq!(left, ["new"]);
        let left: Vec<Vec<u8>> =
            sqlx::query_scalar("SELECT incarnation FROM backstop.removed_incarnations")
                .fetch_all(&mut *pool.lend().await.unwrap())
                .await
                .unwrap();
        assert_eq!(left, [[1]]);
    }
}
