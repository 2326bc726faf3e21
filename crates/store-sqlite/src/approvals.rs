//! Approvals: kept by the appends of their runs, decided through the inbox.

use event_log::{ApprovalChange, Batch, LogError, OpenApproval};
use layer0::Timestamp;
use layer0::event::EventKind;
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{Row, SqliteConnection};

use crate::fault::Fault;
use crate::job_error::JobError;
use crate::rows::{signed, unsigned};

/// Takes in what a batch does to open approvals, inside its transaction. What is asked stands in the
/// event alone, where a change shows.
pub(crate) async fn keep(connection: &mut SqliteConnection, batch: &Batch) -> Result<(), JobError> {
    for change in batch.approval_changes() {
        match change {
            ApprovalChange::Asked(open) => {
                sqlx::query(
                    "INSERT INTO approvals (id, run, call_id, event) \
                     SELECT $1, run, $3, last_event - (last_seq - $4) FROM runs WHERE run = $2",
                )
                .bind(open.id.as_str())
                .bind(open.run.as_str())
                .bind(open.call_id.as_str())
                .bind(signed(open.seq))
                .execute(&mut *connection)
                .await?;
            }
            ApprovalChange::Closed(call_id) => {
                // A decision that came too late is not for the next approval of the call.
                sqlx::query(
                    "DELETE FROM inbox WHERE approval IN \
                     (SELECT id FROM approvals WHERE run = $1 AND call_id = $2)",
                )
                .bind(batch.run.as_str())
                .bind(call_id.as_str())
                .execute(&mut *connection)
                .await?;
                sqlx::query("DELETE FROM approvals WHERE run = $1 AND call_id = $2")
                    .bind(batch.run.as_str())
                    .bind(call_id.as_str())
                    .execute(&mut *connection)
                    .await?;
            }
            // The run is over, which its append says itself.
            ApprovalChange::AllClosed => {}
        }
    }
    Ok(())
}

/// Lists the approvals without a decision, oldest first.
pub(crate) async fn open(readers: &SqlitePool) -> Result<Vec<OpenApproval>, LogError> {
    let rows = sqlx::query(
        "SELECT approvals.id, run, seq, at, type, data FROM approvals \
         JOIN events ON events.id = approvals.event \
         WHERE approvals.id NOT IN (SELECT approval FROM inbox WHERE approval IS NOT NULL) ORDER BY at, approvals.id",
    )
    .fetch_all(readers)
    .await
    .map_err(Fault::from)?;
    Ok(rows.iter().filter_map(open_of).collect())
}

/// Reads an approval from the event that asked for it; one that was changed is none.
fn open_of(row: &SqliteRow) -> Option<OpenApproval> {
    let text = |column: &str| row.try_get::<String, _>(column).ok();
    let id = text("id")?;
    let asked = match EventKind::decode(&text("type")?, &text("data")?) {
        Ok(EventKind::ApprovalRequested(asked)) if asked.approval_id.as_str() == id => asked,
        _ => {
            tracing::warn!(id, "the event of an approval was changed");
            return None;
        }
    };
    let requested_at = Timestamp::from_millis(row.try_get("at").ok()?);
    let seq = unsigned(row.try_get("seq").ok()?);
    Some(OpenApproval::new(text("run")?.into(), seq, requested_at, asked))
}
