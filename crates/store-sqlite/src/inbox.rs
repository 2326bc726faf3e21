//! Inboxes of runs: rows that any process can insert.

use backstop_event_log::{InboxMessage, InboxRequest, LogError};
use layer0::Timestamp;
use layer0::id::{CallId, RunId};
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{Row, SqliteConnection};

use crate::approvals;
use crate::fault::Fault;
use crate::job_error::JobError;
use crate::lookout::Lookout;
use crate::rows::to_u64;
use crate::sent::SubmittedRequest;

/// Inserts a request in a transaction, if its condition holds; returns the run that it addresses.
pub(crate) async fn insert(
    connection: &mut SqliteConnection,
    sent: &SubmittedRequest,
) -> Result<Option<RunId>, JobError> {
    if let Some(approval) = sent.request.decides()
        && !approvals::admit(connection, approval, sent).await?
    {
        return Ok(None);
    }
    if let InboxRequest::Settle { run, call, .. } = &sent.request
        && is_settled(connection, run, call).await?
    {
        return Ok(None);
    }
    let (statement, id, approval) = match &sent.request {
        InboxRequest::Decide { approval, .. } | InboxRequest::Expire { approval } => (
            "INSERT INTO inbox (run, kind, approval, data, sender, at) \
             SELECT run, $2, $3, $4, $5, $6 FROM approvals WHERE id = $1 \
             ON CONFLICT (approval) DO NOTHING RETURNING run",
            approval.as_str(),
            Some(approval.as_str()),
        ),
        InboxRequest::Cancel { run }
        | InboxRequest::Input { run, .. }
        | InboxRequest::Signal { run, .. } => (
            "INSERT INTO inbox (run, kind, approval, data, sender, at) \
             SELECT run, $2, $3, $4, $5, $6 FROM runs WHERE run = $1 \
             AND state IN ('running', 'waiting_approval', 'parked') RETURNING run",
            run.as_str(),
            None,
        ),
        InboxRequest::Settle { run, .. } => (
            "INSERT INTO inbox (run, kind, approval, data, sender, at) \
             SELECT run, $2, $3, $4, $5, $6 FROM runs WHERE run = $1 RETURNING run",
            run.as_str(),
            None,
        ),
        other => {
            return Err(
                LogError::Failed(format!("unknown request `{}`", other.kind()).into()).into()
            );
        }
    };
    let inserted: Option<String> = sqlx::query_scalar(statement)
        .bind(id)
        .bind(sent.request.kind())
        .bind(approval)
        .bind(sent.request.data())
        .bind(&sent.by)
        .bind(sent.at.as_millis())
        .fetch_optional(connection)
        .await?;
    Ok(inserted.map(Into::into))
}

/// Asks for a settlement of call `$2` of run `$1`, pending or recorded. All writers wait meanwhile: no events are read.
const IS_SETTLED: &str = "SELECT EXISTS (SELECT 1 FROM inbox WHERE run = $1 AND kind = 'settlement' \
     AND json_extract(data, '$.call') = $2) \
     OR EXISTS (SELECT 1 FROM settled WHERE run = $1 AND call = $2)";

/// Returns whether a settlement of this call is pending or recorded, in the transaction that sends one.
async fn is_settled(
    connection: &mut SqliteConnection,
    run: &RunId,
    call: &CallId,
) -> Result<bool, JobError> {
    let settled = sqlx::query_scalar(IS_SETTLED).bind(run.as_str()).bind(call.as_str());
    Ok(settled.fetch_one(connection).await?)
}

/// Removes rows that an append records, in its transaction.
pub(crate) async fn take(
    connection: &mut SqliteConnection,
    run: &RunId,
    rows: &[u64],
) -> Result<(), JobError> {
    for row in rows {
        sqlx::query("DELETE FROM inbox WHERE id = $1 AND run = $2")
            .bind(crate::rows::to_i64(*row))
            .bind(run.as_str())
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// Reads the rows of a run, oldest first. A row that cannot be decoded is skipped and stays in the inbox: its run
/// continues without it.
pub(crate) async fn read(
    readers: &SqlitePool,
    run: &RunId,
    lookout: &Lookout,
) -> Result<Vec<InboxMessage>, LogError> {
    let rows = sqlx::query(
        "SELECT id, kind, approval, data, sender, at FROM inbox WHERE run = $1 ORDER BY id",
    )
    .bind(run.as_str())
    .fetch_all(readers)
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
fn decode_message(run: &RunId, row: &SqliteRow) -> Option<InboxMessage> {
    let text = |column: &str| row.try_get::<String, _>(column).ok();
    let approval: Option<String> = row.try_get("approval").ok()?;
    let (kind, data, by) = (text("kind")?, text("data")?, text("sender")?);
    let request = InboxRequest::read(&kind, run.clone(), approval.map(Into::into), &by, &data);
    let at = Timestamp::from_millis(row.try_get("at").ok()?);
    Some(InboxMessage::new(to_u64(row.try_get("id").ok()?), request?, by, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::Database;
    use crate::plan::plan;

    /// Spec: T14
    #[tokio::test]
    async fn settlement_is_found_by_its_key() {
        let database = Database::in_memory().await.unwrap();
        let plan = plan(&database, IS_SETTLED).await;
        let by_key = "SEARCH settled USING PRIMARY KEY (run=? AND call=?)";
        assert!(plan.iter().any(|line| line == by_key), "{plan:#?}");
        let by_run = "SEARCH inbox USING INDEX inbox_by_run (run=?)";
        assert!(plan.iter().any(|line| line == by_run), "{plan:#?}");
        assert!(!plan.iter().any(|line| line.starts_with("SCAN") && !line.contains("CONSTANT")));
    }
}
