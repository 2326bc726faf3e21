//! Checks before a run starts or is reopened, against concurrent removals.

use backstop_event_log::{Batch, LogError};
use layer0::event::RunForked;
use layer0::id::{RunId, SessionId};
use sqlx::{PgConnection, Row};

use crate::fault::Fault;
use crate::rows::{to_i64, to_u64};
use crate::text::{encode_text, read};

/// Returns the sessions whose locks appends need: those in which runs start or are reopened, and those from which they
/// are copied.
pub(crate) async fn sessions_to_lock(
    connection: &mut PgConnection,
    opening: &[&Batch],
    all: &[&Batch],
) -> Result<Vec<SessionId>, LogError> {
    let mut sessions: Vec<SessionId> =
        opening.iter().map(|batch| batch.summary.session.clone()).collect();
    let mut parents = Vec::new();
    for batch in all {
        // An unreadable event is refused when it is the append's turn.
        let forked = batch.forked_from().ok().flatten();
        parents.extend(forked.map(|forked| encode_text(forked.parent.as_str()).into_owned()));
    }
    if !parents.is_empty() {
        let copied: Vec<String> =
            sqlx::query_scalar("SELECT session FROM backstop.runs WHERE run = ANY($1)")
                .bind(parents)
                .fetch_all(connection)
                .await
                .map_err(Fault::from)?;
        sessions.extend(copied.into_iter().map(read).map(SessionId::from));
    }
    Ok(sessions)
}

/// Checks that nothing that a run needs to start or be reopened was removed or is being removed. The locks of its
/// session, and of the session that it is copied from, must be held.
pub(crate) async fn admit(
    connection: &mut PgConnection,
    batch: &Batch,
) -> Result<Option<LogError>, LogError> {
    let summary = &batch.summary;
    let begins = !batch.reopens() && !batch.is_import;
    let earlier = summary.follows.as_ref().filter(|_| begins && summary.parent.is_none());
    let row = sqlx::query(
        "SELECT EXISTS (SELECT 1 FROM backstop.forgetting WHERE session = $1) AS is_forgetting, \
         EXISTS (SELECT 1 FROM backstop.tombstones WHERE run = $2) AS is_forgotten, \
         EXISTS (SELECT 1 FROM backstop.lost_tails WHERE run = $2) AS is_lost, \
         $3::text IS NULL OR EXISTS (SELECT 1 FROM backstop.runs WHERE run = $3) AS has_earlier",
    )
    .bind(&*encode_text(summary.session.as_str()))
    .bind(&*encode_text(batch.run.as_str()))
    .bind(earlier.map(|run| encode_text(run.as_str()).into_owned()))
    .fetch_one(&mut *connection)
    .await
    .map_err(Fault::from)?;
    let is = |column| row.try_get::<bool, _>(column).map_err(Fault::from);
    let refused = |error| Ok(Some(error));
    if is("is_forgetting")? {
        return refused(LogError::Forgetting(summary.session.clone()));
    }
    if begins && is("is_forgotten")? {
        return refused(LogError::RunForgotten(batch.run.clone()));
    }
    if begins && is("is_lost")? {
        return refused(LogError::Lost(batch.run.clone()));
    }
    match (is("has_earlier")?, earlier) {
        (false, Some(earlier)) => refused(LogError::NotFound(earlier.clone())),
        _ => match batch.forked_from() {
            Ok(Some(forked)) => admit_fork(connection, &forked).await,
            Ok(None) => Ok(None),
            Err(error) => refused(error),
        },
    }
}

/// Checks that the copied events still exist, and that none was erased since it was read. Until the transaction ends,
/// the run is not removed, and none of its events is erased.
async fn admit_fork(
    connection: &mut PgConnection,
    forked: &RunForked,
) -> Result<Option<LogError>, LogError> {
    let parent: &RunId = &forked.parent;
    let row = sqlx::query(
        "SELECT id, session, EXISTS (SELECT 1 FROM backstop.forgetting \
         WHERE forgetting.session = runs.session) AS is_forgetting \
         FROM backstop.runs AS runs WHERE run = $1 FOR KEY SHARE",
    )
    .bind(&*encode_text(parent.as_str()))
    .fetch_optional(&mut *connection)
    .await
    .map_err(Fault::from)?;
    let Some(row) = row else {
        return Ok(Some(LogError::NotFound(parent.clone())));
    };
    if row.try_get("is_forgetting").map_err(Fault::from)? {
        let session = read(row.try_get("session").map_err(Fault::from)?);
        return Ok(Some(LogError::Forgetting(session.into())));
    }
    let erased: Option<i64> = sqlx::query_scalar(
        "SELECT min(seq) FROM backstop.events WHERE run_id = $1 AND seq <= $2 AND erased IS NOT NULL",
    )
    .bind(row.try_get::<i64, _>("id").map_err(Fault::from)?)
    .bind(to_i64(forked.at))
    .fetch_one(connection)
    .await
    .map_err(Fault::from)?;
    Ok(erased.map(|seq| LogError::erased_event(to_u64(seq))))
}
