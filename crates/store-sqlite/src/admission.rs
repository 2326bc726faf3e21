//! Checks before a run starts or is reopened, against concurrent removals.

use backstop_event_log::{Batch, LogError};
use layer0::event::RunForked;
use layer0::id::{RunId, SessionId};
use sqlx::SqliteConnection;

use crate::job_error::JobError;
use crate::rows::{chain, to_i64, to_u64};

/// Checks that nothing that a new run needs was removed or is being removed.
pub(crate) async fn admit_begin(
    connection: &mut SqliteConnection,
    batch: &Batch,
) -> Result<(), JobError> {
    let summary = &batch.summary;
    refuse_forgetting(connection, &summary.session).await?;
    if batch.is_import {
        return Ok(());
    }
    if is_in(connection, "SELECT 1 FROM tombstones WHERE run = $1", &batch.run).await? {
        return Err(JobError::Log(LogError::RunForgotten(batch.run.clone())));
    }
    if is_in(connection, "SELECT 1 FROM lost_tails WHERE run = $1", &batch.run).await? {
        return Err(JobError::Log(LogError::Lost(batch.run.clone())));
    }
    match batch.forked_from().map_err(JobError::Log)? {
        Some(forked) => admit_fork(connection, &forked).await,
        None => Ok(()),
    }
}

/// Checks that the run which a new run follows still exists.
pub(crate) async fn admit_follower(
    connection: &mut SqliteConnection,
    batch: &Batch,
) -> Result<(), JobError> {
    let summary = &batch.summary;
    let earlier = summary.follows.as_ref().filter(|_| summary.parent.is_none() && !batch.is_import);
    if let Some(earlier) = earlier
        && !is_in(connection, "SELECT 1 FROM runs WHERE run = $1", earlier).await?
    {
        return Err(JobError::Log(LogError::NotFound(earlier.clone())));
    }
    Ok(())
}

/// Checks that the session of a run to reopen is not being forgotten.
pub(crate) async fn admit_reopening(
    connection: &mut SqliteConnection,
    batch: &Batch,
) -> Result<(), JobError> {
    refuse_forgetting(connection, &batch.summary.session).await
}

/// Checks that the copied events still exist, and that none was erased since it was read.
async fn admit_fork(connection: &mut SqliteConnection, forked: &RunForked) -> Result<(), JobError> {
    let parent = &forked.parent;
    let session: Option<String> = sqlx::query_scalar("SELECT session FROM runs WHERE run = $1")
        .bind(parent.as_str())
        .fetch_optional(&mut *connection)
        .await?;
    let Some(session) = session else {
        return Err(JobError::Log(LogError::NotFound(parent.clone())));
    };
    refuse_forgetting(connection, &session.into()).await?;
    let erased: Option<i64> = sqlx::query_scalar(chain!(
        "SELECT min(seq) FROM chain WHERE erased IS NOT NULL AND seq <= $3"
    ))
    .bind(parent.as_str())
    .bind(1_i64)
    .bind(to_i64(forked.at))
    .fetch_one(connection)
    .await?;
    match erased {
        Some(seq) => Err(JobError::Log(LogError::erased_event(to_u64(seq)))),
        None => Ok(()),
    }
}

async fn refuse_forgetting(
    connection: &mut SqliteConnection,
    session: &SessionId,
) -> Result<(), JobError> {
    let marked: Option<i64> = sqlx::query_scalar("SELECT 1 FROM forgetting WHERE session = $1")
        .bind(session.as_str())
        .fetch_optional(connection)
        .await?;
    match marked {
        Some(_) => Err(JobError::Log(LogError::Forgetting(session.clone()))),
        None => Ok(()),
    }
}

async fn is_in(
    connection: &mut SqliteConnection,
    statement: &'static str,
    run: &RunId,
) -> Result<bool, JobError> {
    let found: Option<i64> =
        sqlx::query_scalar(statement).bind(run.as_str()).fetch_optional(connection).await?;
    Ok(found.is_some())
}
