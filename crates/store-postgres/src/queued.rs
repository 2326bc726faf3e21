//! What becomes of the row of a run in the queue while its record is written.

use sqlx::PgConnection;

use backstop_event_log::LogError;
use layer0::id::RunId;

use crate::fault::Fault;
use crate::text::stored;

/// Takes away what a run was asked, which stands in its record from now on and can be erased there.
pub(crate) async fn begin(connection: &mut PgConnection, run: &RunId) -> Result<(), LogError> {
    sqlx::query("UPDATE backstop.queue SET task = '', refused = NULL WHERE run = $1")
        .bind(&*stored(run.as_str()))
        .execute(connection)
        .await
        .map_err(Fault::from)?;
    Ok(())
}

/// Takes a run out that is over. Once its record is removed, nothing tells it from one that has not begun.
pub(crate) async fn end(connection: &mut PgConnection, run: &RunId) -> Result<(), LogError> {
    sqlx::query("DELETE FROM backstop.queue WHERE run = $1")
        .bind(&*stored(run.as_str()))
        .execute(connection)
        .await
        .map_err(Fault::from)?;
    Ok(())
}
