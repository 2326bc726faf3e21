//! Questions to people: kept by the appends of their runs, decided by anybody.

use event_log::{ApprovalChange, Batch, Decision, LogError, OpenApproval};
use layer0::Timestamp;
use layer0::event::EventKind;
use layer0::id::ApprovalId;
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{Row, SqliteConnection};

use crate::fault::Fault;
use crate::log::{signed, unsigned};
use crate::writer::JobError;

/// Takes in what a batch does to open questions, inside its transaction. What is asked stands in the
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
                sqlx::query("DELETE FROM approvals WHERE run = $1 AND call_id = $2")
                    .bind(batch.run.as_str())
                    .bind(call_id.as_str())
                    .execute(&mut *connection)
                    .await?;
            }
            ApprovalChange::AllClosed => {
                sqlx::query("DELETE FROM approvals WHERE run = $1")
                    .bind(batch.run.as_str())
                    .execute(&mut *connection)
                    .await?;
            }
        }
    }
    Ok(())
}

/// Writes a decision inside a transaction; `false` when the question is not open.
pub(crate) async fn decide(
    connection: &mut SqliteConnection,
    id: &ApprovalId,
    decision: &Decision,
) -> Result<bool, JobError> {
    let written = sqlx::query(
        "INSERT INTO decisions (approval_id, approved, decided_by, reason) \
         SELECT id, $2, $3, $4 FROM approvals WHERE id = $1 \
         ON CONFLICT (approval_id) DO NOTHING",
    )
    .bind(id.as_str())
    .bind(decision.approved)
    .bind(&decision.by)
    .bind(&decision.reason)
    .execute(connection)
    .await?;
    Ok(written.rows_affected() > 0)
}

/// Lists the questions without a decision, oldest first.
pub(crate) async fn open(readers: &SqlitePool) -> Result<Vec<OpenApproval>, LogError> {
    let rows = sqlx::query(
        "SELECT approvals.id, run, seq, at, type, data FROM approvals \
         JOIN events ON events.id = approvals.event \
         WHERE approvals.id NOT IN (SELECT approval_id FROM decisions) ORDER BY at, approvals.id",
    )
    .fetch_all(readers)
    .await
    .map_err(Fault::from)?;
    Ok(rows.iter().filter_map(open_of).collect())
}

/// Reads a decision.
pub(crate) async fn decision(
    readers: &SqlitePool,
    id: &ApprovalId,
) -> Result<Option<Decision>, LogError> {
    let row =
        sqlx::query("SELECT approved, decided_by, reason FROM decisions WHERE approval_id = $1")
            .bind(id.as_str())
            .fetch_optional(readers)
            .await
            .map_err(Fault::from)?;
    row.as_ref().map(decision_of).transpose()
}

/// Reads a question from the event that asked it; one that was changed is none.
fn open_of(row: &SqliteRow) -> Option<OpenApproval> {
    let text = |column: &str| row.try_get::<String, _>(column).ok();
    let id = text("id")?;
    let asked = match EventKind::decode(&text("type")?, &text("data")?) {
        Ok(EventKind::ApprovalRequested(asked)) if asked.approval_id.as_str() == id => asked,
        _ => {
            tracing::warn!(id, "the event of a question was changed");
            return None;
        }
    };
    let requested_at = Timestamp::from_millis(row.try_get("at").ok()?);
    let seq = unsigned(row.try_get("seq").ok()?);
    Some(OpenApproval::new(text("run")?.into(), seq, requested_at, asked))
}

fn decision_of(row: &SqliteRow) -> Result<Decision, LogError> {
    let by: String = row.try_get("decided_by").map_err(Fault::from)?;
    let reason: Option<String> = row.try_get("reason").map_err(Fault::from)?;
    let mut decision = match row.try_get("approved").map_err(Fault::from)? {
        true => Decision::approve(by),
        false => Decision::deny(by, String::new()),
    };
    decision.reason = reason;
    Ok(decision)
}
