//! Approvals: stored by the appends of their runs, decided through the inbox.

use backstop_event_log::{ApprovalChange, Batch, InboxRequest, LogError, OpenApproval};
use layer0::Timestamp;
use layer0::event::EventKind;
use layer0::id::{ApprovalId, RunId};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use crate::fault::Fault;
use crate::pool::ConnectionPool;
use crate::rows::{to_i64, to_u64};
use crate::sent::SubmittedRequest;
use crate::text::{self, encode_text};

/// Kind of a row that expires an approval.
const EXPIRY: &str = "expiry";

/// Applies a batch's changes of open approvals, in its transaction. The request itself is stored only in the event,
/// where a change is detected.
pub(crate) async fn keep(connection: &mut PgConnection, batch: &Batch) -> Result<(), LogError> {
    let run = encode_text(batch.run.as_str());
    for change in batch.approval_changes() {
        match change? {
            ApprovalChange::Asked(open) => {
                sqlx::query(
                    "INSERT INTO backstop.approvals (id, run, call_id, run_id, seq, expires_at) \
                     SELECT $1, run, $3, id, $4, $5 FROM backstop.runs WHERE run = $2",
                )
                .bind(&*encode_text(open.id.as_str()))
                .bind(&*run)
                .bind(&*encode_text(open.call_id.as_str()))
                .bind(to_i64(open.seq))
                .bind(open.expires_at.map(Timestamp::as_millis))
                .execute(&mut *connection)
                .await
                .map_err(Fault::from)?;
            }
            ApprovalChange::Closed(call_id) => {
                // A late decision must not apply to the next approval of the call.
                sqlx::query(
                    "WITH closed AS (DELETE FROM backstop.approvals WHERE run = $1 AND call_id = $2 \
                     RETURNING id) DELETE FROM backstop.inbox USING closed WHERE approval = closed.id",
                )
                .bind(&*run)
                .bind(&*encode_text(call_id.as_str()))
                .execute(&mut *connection)
                .await
                .map_err(Fault::from)?;
            }
            ApprovalChange::Expired(id) => {
                sqlx::query(
                    "WITH closed AS (DELETE FROM backstop.approvals WHERE id = $1 RETURNING id, run), \
                     told AS (DELETE FROM backstop.inbox WHERE approval = $1) \
                     INSERT INTO backstop.expired_approvals SELECT id, run FROM closed",
                )
                .bind(&*encode_text(id.as_str()))
                .execute(&mut *connection)
                .await
                .map_err(Fault::from)?;
            }
            // The append itself records the end of the run.
            ApprovalChange::AllClosed => {}
        }
    }
    Ok(())
}

/// Closes the approvals of a run that has ended.
pub(crate) async fn close(connection: &mut PgConnection, run: &RunId) -> Result<(), LogError> {
    sqlx::query("DELETE FROM backstop.approvals WHERE run = $1")
        .bind(&*encode_text(run.as_str()))
        .execute(connection)
        .await
        .map_err(Fault::from)?;
    Ok(())
}

/// Returns the run that requested an open approval.
pub(crate) async fn find_requesting_run(
    connection: &mut PgConnection,
    id: &ApprovalId,
) -> Result<Option<RunId>, LogError> {
    let run: Option<String> =
        sqlx::query_scalar("SELECT run FROM backstop.approvals WHERE id = $1")
            .bind(&*encode_text(id.as_str()))
            .fetch_optional(connection)
            .await
            .map_err(Fault::from)?;
    Ok(run.map(text::read).map(Into::into))
}

/// Refuses to decide an expired approval.
pub(crate) async fn refuse_expired(
    connection: &mut PgConnection,
    id: &ApprovalId,
    sent: &SubmittedRequest,
) -> Result<(), LogError> {
    let expired = sqlx::query("SELECT 1 FROM backstop.expired_approvals WHERE id = $1")
        .bind(&*encode_text(id.as_str()))
        .fetch_optional(connection)
        .await
        .map_err(Fault::from)?;
    match expired.is_some() && matches!(sent.request, InboxRequest::Decide { .. }) {
        true => Err(LogError::ApprovalExpired(id.clone())),
        false => Ok(()),
    }
}

/// Checks whether a request may decide the approval now, in the transaction that inserts the request and locks the run.
pub(crate) async fn admit(
    connection: &mut PgConnection,
    id: &ApprovalId,
    sent: &SubmittedRequest,
) -> Result<bool, LogError> {
    let asked = sqlx::query(
        "SELECT approvals.id, approvals.run, events.seq, events.at, events.type, events.data, \
         coalesce(extract(epoch FROM clock_timestamp() - asked_at) * 1000 \
         >= approvals.expires_at::numeric - events.at + 60000, false) AS is_late, inbox.kind AS decided, EXISTS (SELECT 1 FROM backstop.inbox AS other \
         WHERE other.run = approvals.run AND other.kind = 'cancel') AS stops \
         FROM backstop.approvals AS approvals \
         JOIN backstop.events AS events \
         ON events.run_id = approvals.run_id AND events.seq = approvals.seq \
         LEFT JOIN backstop.inbox AS inbox ON inbox.approval = approvals.id WHERE approvals.id = $1",
    )
    .bind(&*encode_text(id.as_str()))
    .fetch_optional(&mut *connection)
    .await
    .map_err(Fault::from)?;
    let is_decision = matches!(sent.request, InboxRequest::Decide { .. });
    let Some(row) = asked else {
        refuse_expired(connection, id, sent).await?;
        return Ok(false);
    };
    let decided: Option<String> = row.try_get("decided").map_err(Fault::from)?;
    match decided.as_deref() {
        Some(EXPIRY) if is_decision => return Err(LogError::ApprovalExpired(id.clone())),
        Some(_) => return Ok(false),
        None => {}
    }
    let is_to_stop: bool = row.try_get("stops").map_err(Fault::from)?;
    let is_late: bool = row.try_get("is_late").map_err(Fault::from)?;
    match decode_approval(&row) {
        None => Ok(false),
        Some(_) if is_decision && is_to_stop => Ok(false),
        // The sender's clock may be behind. The server's clock allows one more minute.
        Some(_) if is_decision && is_late => Err(LogError::ApprovalExpired(id.clone())),
        Some(open) if is_decision => open.check(&sent.by, sent.at).map(|()| true),
        Some(open) => Ok(open.is_over(sent.at)),
    }
}

/// Lists the approvals without a decision, oldest first.
pub(crate) async fn open(readers: &ConnectionPool) -> Result<Vec<OpenApproval>, LogError> {
    let rows = sqlx::query(
        "SELECT approvals.id, approvals.run, events.seq, events.at, events.type, events.data \
         FROM backstop.approvals AS approvals JOIN backstop.events AS events \
         ON events.run_id = approvals.run_id AND events.seq = approvals.seq \
         WHERE NOT EXISTS (SELECT 1 FROM backstop.inbox WHERE approval = approvals.id) \
         ORDER BY events.at, approvals.id",
    )
    .fetch_all(&mut *readers.lend().await?)
    .await
    .map_err(Fault::from)?;
    Ok(rows.iter().filter_map(decode_approval).collect())
}

/// Decodes an approval from the event that requested it; `None` if the event was changed.
fn decode_approval(row: &PgRow) -> Option<OpenApproval> {
    let text = |column: &str| row.try_get::<String, _>(column).ok();
    let id = text::column(row, "id").ok()?;
    let asked = match EventKind::decode(&text("type")?, &text("data")?) {
        Ok(EventKind::ApprovalRequested(asked)) if asked.approval_id.as_str() == id => asked,
        _ => {
            tracing::warn!(id, "the event of an approval was changed");
            return None;
        }
    };
    let requested_at = Timestamp::from_millis(row.try_get("at").ok()?);
    let seq = to_u64(row.try_get("seq").ok()?);
    let run = text::column(row, "run").ok()?;
    Some(OpenApproval::new(run.into(), seq, requested_at, asked))
}
