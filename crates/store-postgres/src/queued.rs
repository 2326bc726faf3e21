//! The row of a run in the queue while its record is written.

use sqlx::PgConnection;

use backstop_event_log::LogError;
use layer0::id::RunId;

use crate::fault::Fault;
use crate::text::encode_text;

/// Removes the task of a started run, which is in its record from then on and can be erased there.
pub(crate) async fn begin(connection: &mut PgConnection, run: &RunId) -> Result<(), LogError> {
    sqlx::query("UPDATE backstop.queue SET task = '', refused = NULL WHERE run = $1")
        .bind(&*encode_text(run.as_str()))
        .execute(connection)
        .await
        .map_err(Fault::from)?;
    Ok(())
}

/// Removes the row of an ended run. After its record is removed, the row would look like that of a run that has not
/// started.
pub(crate) async fn end(connection: &mut PgConnection, run: &RunId) -> Result<(), LogError> {
    sqlx::query("DELETE FROM backstop.queue WHERE run = $1")
        .bind(&*encode_text(run.as_str()))
        .execute(connection)
        .await
        .map_err(Fault::from)?;
    Ok(())
}
