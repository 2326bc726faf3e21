//! The server's time, which decides what rows are old.

use layer0::Timestamp;
use sqlx::PgConnection;

/// Returns the given time, or the server's time if that is earlier.
pub(crate) async fn cap_at_server_time(
    connection: &mut PgConnection,
    time: Timestamp,
) -> Result<Timestamp, sqlx::Error> {
    let of_server: i64 =
        sqlx::query_scalar("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
            .fetch_one(connection)
            .await?;
    Ok(time.min(Timestamp::from_millis(of_server)))
}
