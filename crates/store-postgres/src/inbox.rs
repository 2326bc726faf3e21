//! Inboxes of runs: rows that any process can insert.

use async_trait::async_trait;
use backstop_event_log::{InboxMessage, InboxRequest, LogError};
use layer0::Timestamp;
use layer0::id::{CallId, RunId};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use crate::approvals;
use crate::fault::Fault;
use crate::lookout::Lookout;
use crate::pool::ConnectionPool;
use crate::rows::{to_i64, to_u64};
use crate::sent::SubmittedRequest;
use crate::text::{self, encode_text};
use crate::transact::TransactionWork;

/// Inserts the request, if its condition holds; returns the run that it addresses. The row of the run is locked first,
/// so that an append that ends the run, or another request, comes completely before or after it.
#[async_trait]
impl TransactionWork for SubmittedRequest {
    type Done = Option<RunId>;
    type Error = LogError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<Option<RunId>, LogError> {
        insert(connection, self).await
    }
}

async fn insert(
    connection: &mut PgConnection,
    sent: &SubmittedRequest,
) -> Result<Option<RunId>, LogError> {
    let (run, approval, call) = match &sent.request {
        InboxRequest::Decide { approval, .. } | InboxRequest::Expire { approval } => {
            let Some(run) = approvals::find_requesting_run(connection, approval).await? else {
                approvals::refuse_expired(connection, approval, sent).await?;
                return Ok(None);
            };
            (run, Some(approval), None)
        }
        InboxRequest::Cancel { run }
        | InboxRequest::Input { run, .. }
        | InboxRequest::Signal { run, .. } => (run.clone(), None, None),
        InboxRequest::Settle { run, call, .. } => (run.clone(), None, Some(call)),
        other => {
            return Err(LogError::Failed(format!("unknown request `{}`", other.kind()).into()));
        }
    };
    let open: Option<bool> = sqlx::query_scalar(
        "SELECT state IN ('running', 'waiting_approval', 'parked') FROM backstop.runs \
         WHERE run = $1 FOR NO KEY UPDATE",
    )
    .bind(&*encode_text(run.as_str()))
    .fetch_optional(&mut *connection)
    .await
    .map_err(Fault::from)?;
    let is_admitted = match (open, approval, call) {
        (None, _, _) => false,
        (Some(_), Some(approval), _) => approvals::admit(connection, approval, sent).await?,
        (Some(_), None, Some(call)) => !is_settled(connection, &run, call).await?,
        (Some(is_open), None, None) => is_open,
    };
    if !is_admitted {
        return Ok(None);
    }
    let inserted = sqlx::query(
        "INSERT INTO backstop.inbox (run, kind, approval, call_id, data, sender, at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (approval) DO NOTHING",
    )
    .bind(&*encode_text(run.as_str()))
    .bind(sent.request.kind())
    .bind(approval.map(|approval| encode_text(approval.as_str()).into_owned()))
    .bind(call.map(|call| encode_text(call.as_str()).into_owned()))
    .bind(&*encode_text(&sent.request.data()))
    .bind(&*encode_text(&sent.by))
    .bind(sent.at.as_millis())
    .execute(connection)
    .await
    .map_err(Fault::from)?;
    Ok((inserted.rows_affected() > 0).then_some(run))
}

/// Returns whether a settlement of this call is pending or recorded.
async fn is_settled(
    connection: &mut PgConnection,
    run: &RunId,
    call: &CallId,
) -> Result<bool, LogError> {
    let (run, call) = (encode_text(run.as_str()), encode_text(call.as_str()));
    let settled = sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM backstop.inbox WHERE run = $1 AND kind = 'settlement' \
         AND call_id = $2) \
         OR EXISTS (SELECT 1 FROM backstop.settled \
         WHERE run = $1 AND call = sha256(convert_to($2, 'UTF8')))",
    );
    let settled = settled.bind(&*run).bind(&*call).fetch_one(connection);
    Ok(settled.await.map_err(Fault::from)?)
}

/// Removes rows that an append records, in its transaction.
pub(crate) async fn take(
    connection: &mut PgConnection,
    run: &RunId,
    rows: &[u64],
) -> Result<(), LogError> {
    if rows.is_empty() {
        return Ok(());
    }
    let rows: Vec<i64> = rows.iter().copied().map(to_i64).collect();
    sqlx::query("DELETE FROM backstop.inbox WHERE id = ANY($1) AND run = $2")
        .bind(rows)
        .bind(&*encode_text(run.as_str()))
        .execute(connection)
        .await
        .map_err(Fault::from)?;
    Ok(())
}

/// Removes the requests that a run no longer needs after its end. Input, signals and settlements wait for the next
/// writer.
pub(crate) async fn close(connection: &mut PgConnection, run: &RunId) -> Result<(), LogError> {
    sqlx::query("DELETE FROM backstop.inbox WHERE run = $1 AND kind NOT IN ('input', 'settlement', 'signal')")
        .bind(&*encode_text(run.as_str()))
        .execute(connection)
        .await
        .map_err(Fault::from)?;
    Ok(())
}

/// Reads the rows of a run, oldest first. A row that cannot be decoded is skipped and stays in the inbox: its run
/// continues without it.
pub(crate) async fn rows(
    readers: &ConnectionPool,
    run: &RunId,
    lookout: &Lookout,
) -> Result<Vec<InboxMessage>, LogError> {
    let rows = sqlx::query(
        "SELECT id, kind, approval, data, sender, at FROM backstop.inbox WHERE run = $1 ORDER BY id",
    )
    .bind(&*encode_text(run.as_str()))
    .fetch_all(&mut *readers.lend().await?)
    .await
    .map_err(Fault::from)?;
    let read = |row| {
        let message = decode_message(run, row);
        if message.is_none() {
            lookout.warn_once(run, row.try_get("id").unwrap_or(0));
        }
        message
    };
    Ok(rows.iter().filter_map(read).collect())
}

/// Decodes a row; `None` if it was changed.
fn decode_message(run: &RunId, row: &PgRow) -> Option<InboxMessage> {
    let text = |column: &str| text::column(row, column).ok();
    let approval = text::optional(row, "approval").ok()?;
    let (kind, data, by) = (text("kind")?, text("data")?, text("sender")?);
    let request = InboxRequest::read(&kind, run.clone(), approval.map(Into::into), &by, &data);
    let at = Timestamp::from_millis(row.try_get("at").ok()?);
    Some(InboxMessage::new(to_u64(row.try_get("id").ok()?), request?, by, at))
}
