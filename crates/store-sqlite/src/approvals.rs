//! Approvals: stored by the appends of their runs, decided through the inbox.

use backstop_event_log::{ApprovalChange, Batch, InboxRequest, LogError, OpenApproval};
use layer0::Timestamp;
use layer0::event::EventKind;
use layer0::id::ApprovalId;
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{Row, SqliteConnection};

use crate::fault::Fault;
use crate::job_error::JobError;
use crate::rows::{to_i64, to_u64};
use crate::sent::SubmittedRequest;

/// Kind of a row that expires an approval.
const EXPIRY: &str = "expiry";

/// Applies a batch's changes of open approvals, in its transaction. The request itself is stored only in the event,
/// where a change is detected.
pub(crate) async fn keep(connection: &mut SqliteConnection, batch: &Batch) -> Result<(), JobError> {
    for change in batch.approval_changes() {
        match change? {
            ApprovalChange::Asked(open) => {
                sqlx::query(
                    "INSERT INTO approvals (id, run, call_id, event) \
                     SELECT $1, run, $3, last_event - (last_seq - $4) FROM runs WHERE run = $2",
                )
                .bind(open.id.as_str())
                .bind(open.run.as_str())
                .bind(open.call_id.as_str())
                .bind(to_i64(open.seq))
                .execute(&mut *connection)
                .await?;
            }
            ApprovalChange::Closed(call_id) => {
                // A late decision must not apply to the next approval of the call.
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
            ApprovalChange::Expired(id) => {
                for statement in [
                    "INSERT INTO expired_approvals SELECT id, run FROM approvals WHERE id = $1",
                    "DELETE FROM inbox WHERE approval = $1",
                    "DELETE FROM approvals WHERE id = $1",
                ] {
                    sqlx::query(statement).bind(id.as_str()).execute(&mut *connection).await?;
                }
            }
            // The append itself records the end of the run.
            ApprovalChange::AllClosed => {}
        }
    }
    Ok(())
}

/// Checks whether a request may decide the approval now, in the transaction that inserts the request.
pub(crate) async fn admit(
    connection: &mut SqliteConnection,
    id: &ApprovalId,
    sent: &SubmittedRequest,
) -> Result<bool, JobError> {
    let asked = sqlx::query(
        "SELECT approvals.id, approvals.run, seq, events.at, type, events.data, inbox.kind, \
         EXISTS (SELECT 1 FROM inbox WHERE run = approvals.run AND kind = 'cancel') AS stops \
         FROM approvals JOIN events ON events.id = approvals.event \
         LEFT JOIN inbox ON inbox.approval = approvals.id WHERE approvals.id = $1",
    )
    .bind(id.as_str())
    .fetch_optional(&mut *connection)
    .await?;
    let is_decision = matches!(sent.request, InboxRequest::Decide { .. });
    let decided: Option<String> = match &asked {
        Some(row) => row.try_get("kind")?,
        None => None,
    };
    let is_expired = match (&asked, &decided) {
        (None, _) => has_expired(connection, id).await?,
        (Some(_), Some(kind)) => kind == EXPIRY,
        (Some(_), None) => false,
    };
    if is_expired && is_decision {
        return Err(JobError::Log(LogError::ApprovalExpired(id.clone())));
    }
    let is_to_stop = asked.as_ref().map(|row| row.try_get::<bool, _>("stops")).transpose()?;
    match asked.filter(|_| decided.is_none()).as_ref().and_then(decode_approval) {
        None => Ok(false),
        Some(_) if is_decision && is_to_stop == Some(true) => Ok(false),
        Some(open) if is_decision => {
            open.check(&sent.by, sent.at).map(|()| true).map_err(JobError::Log)
        }
        Some(open) => Ok(open.is_over(sent.at)),
    }
}

async fn has_expired(connection: &mut SqliteConnection, id: &ApprovalId) -> Result<bool, JobError> {
    let expired = sqlx::query("SELECT 1 FROM expired_approvals WHERE id = $1").bind(id.as_str());
    Ok(expired.fetch_optional(connection).await?.is_some())
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
    Ok(rows.iter().filter_map(decode_approval).collect())
}

/// Decodes an approval from the event that requested it; `None` if the event was changed.
fn decode_approval(row: &SqliteRow) -> Option<OpenApproval> {
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
    let seq = to_u64(row.try_get("seq").ok()?);
    Some(OpenApproval::new(text("run")?.into(), seq, requested_at, asked))
}
