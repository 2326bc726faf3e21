//! The server's time, which decides what rows are old or due.

use layer0::Timestamp;
use sqlx::PgConnection;

/// The server's time in milliseconds, as an expression that an index can be searched with.
macro_rules! server_ms {
    () => {
        "floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint"
    };
}
pub(crate) use server_ms;

/// The time in the parameter `$n`, in milliseconds, or the server's time if it is null.
macro_rules! given_ms {
    ($time:literal) => {
        concat!("coalesce(", $time, "::bigint, ", $crate::server_time::server_ms!(), ")")
    };
}
pub(crate) use given_ms;

/// Returns the given time, or the server's time if that is earlier.
pub(crate) async fn cap_at_server_time(
    connection: &mut PgConnection,
    time: Timestamp,
) -> Result<Timestamp, sqlx::Error> {
    let server: i64 =
        sqlx::query_scalar(concat!("SELECT ", server_ms!())).fetch_one(connection).await?;
    Ok(time.min(Timestamp::from_millis(server)))
}
