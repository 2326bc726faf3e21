//! The time of day of the server, by which old rows are removed.

use layer0::Timestamp;
use sqlx::PgConnection;

/// Returns a time, or that of the server where this one is ahead of it.
pub(crate) async fn bounded(
    connection: &mut PgConnection,
    time: Timestamp,
) -> Result<Timestamp, sqlx::Error> {
    let of_server: i64 =
        sqlx::query_scalar("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
            .fetch_one(connection)
            .await?;
    Ok(time.min(Timestamp::from_millis(of_server)))
}
