//! Writes of the store of large results.

use backstop_error_store::{NewResult, Origin, StoreError, result_id};
use layer0::id::ResultId;
use sqlx::SqliteConnection;

use crate::errors::len_to_i64;
use crate::job_error::JobError;

/// Maximum number of draws for a free id.
const ID_TRIES: usize = 16;

/// Writes a result in a transaction.
pub(crate) async fn write(
    connection: &mut SqliteConnection,
    result: &NewResult,
) -> Result<ResultId, JobError> {
    for _ in 0..ID_TRIES {
        let id = result_id(result.origin().at).map_err(JobError::Store)?;
        if insert(connection, &id, result.origin(), result.body()).await? {
            return Ok(id);
        }
    }
    Err(JobError::Store(StoreError::Failed("no free result id".into())))
}

pub(super) async fn insert(
    connection: &mut SqliteConnection,
    id: &ResultId,
    origin: &Origin,
    body: &str,
) -> Result<bool, JobError> {
    let written = sqlx::query(
        "INSERT INTO results (id, session, run, call_id, tool, at, bytes, body) \
         SELECT $1, $2, $3, $4, $5, $6, $7, $8 \
         WHERE NOT EXISTS (SELECT 1 FROM expired WHERE id = $1) ON CONFLICT (id) DO NOTHING",
    )
    .bind(id.as_str())
    .bind(origin.session.as_str())
    .bind(origin.run.as_str())
    .bind(origin.call_id.as_str())
    .bind(&*origin.tool)
    .bind(origin.at.as_millis())
    .bind(len_to_i64(body.len()))
    .bind(body)
    .execute(connection)
    .await?;
    Ok(written.rows_affected() == 1)
}
