//! Events and references of removed runs, which are removed after the runs' rows.

use async_trait::async_trait;
use backstop_error_store::StoreError;
use sqlx::PgConnection;

use crate::fault::Fault;
use crate::rows::to_i64;
use crate::transact::TransactionWork;

/// Maximum number of rows of a run that one transaction removes.
const BATCH: i64 = 512;

/// Removes some remains of a removed run other than its texts, and returns the number of rows; 0 if nothing is left.
pub(crate) struct SweepEvents(pub(crate) i64);

impl SweepEvents {
    /// Removes the references of the run in batches once its events are gone, and then the rest. A run that exists
    /// again under the same id keeps its own.
    async fn sweep_rest(&self, connection: &mut PgConnection) -> Result<i64, StoreError> {
        let references = sqlx::query(
            "DELETE FROM backstop.refers WHERE (run, id) IN (SELECT refers.run, refers.id \
             FROM backstop.removed AS removed JOIN backstop.refers AS refers ON refers.run = removed.run \
             WHERE removed.run_id = $1 \
             AND NOT EXISTS (SELECT 1 FROM backstop.runs AS runs WHERE runs.run = removed.run) LIMIT $2)",
        )
        .bind(self.0)
        .bind(BATCH)
        .execute(&mut *connection)
        .await
        .map_err(Fault::from)?;
        if references.rows_affected() > 0 {
            return Ok(to_i64(references.rows_affected()));
        }
        for statement in [
            "DELETE FROM backstop.positions WHERE subscription IN \
             (SELECT name FROM backstop.subscriptions) AND run IN \
             (SELECT run FROM backstop.removed AS removed WHERE run_id = $1 \
             AND NOT EXISTS (SELECT 1 FROM backstop.runs AS runs WHERE runs.run = removed.run))",
            "DELETE FROM backstop.removed WHERE run_id = $1",
        ] {
            sqlx::query(statement)
                .bind(self.0)
                .execute(&mut *connection)
                .await
                .map_err(Fault::from)?;
        }
        Ok(0)
    }
}

#[async_trait]
impl TransactionWork for SweepEvents {
    type Done = i64;
    type Error = StoreError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<i64, StoreError> {
        // A cursor may be after the event that was the newest.
        let many: i64 = sqlx::query_scalar(
            "WITH gone AS (DELETE FROM backstop.events WHERE run_id = $1 AND seq IN \
             (SELECT seq FROM backstop.events WHERE run_id = $1 ORDER BY seq DESC LIMIT $2) \
             RETURNING place), \
             known AS (UPDATE backstop.meta SET removed_until = newest.place FROM \
             (SELECT max(place) AS place FROM gone) AS newest WHERE removed_until < newest.place) \
             SELECT count(*) FROM gone",
        )
        .bind(self.0)
        .bind(BATCH)
        .fetch_one(&mut *connection)
        .await
        .map_err(Fault::from)?;
        match many {
            0 => self.sweep_rest(connection).await,
            many => Ok(many),
        }
    }
}
