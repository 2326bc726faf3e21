//! Admission of runs without a caller: beginning and reopening in a session.

use backstop_event_log::{LogError, RunSummary};
use layer0::id::{RunId, SessionId};
use sqlx::PgConnection;

use crate::fault::Fault;
use crate::text::{encode_text, read};

/// The seed that separates the locks of sessions from other advisory locks of the database.
const SEED: i64 = 0x4253_5453;

/// Keeps other transactions from opening runs in sessions, until this one ends.
pub(crate) async fn lock(
    connection: &mut PgConnection,
    sessions: impl Iterator<Item = &SessionId>,
) -> Result<(), LogError> {
    let sessions: Vec<String> =
        sessions.map(|session| encode_text(session.as_str()).into_owned()).collect();
    if sessions.is_empty() {
        return Ok(());
    }
    // In one order, so that two transactions never wait for each other.
    sqlx::query(
        "SELECT pg_advisory_xact_lock(key) FROM (SELECT DISTINCT hashtextextended(session, $2) AS key \
         FROM unnest($1::text[]) AS session ORDER BY key) AS keys",
    )
    .bind(sessions)
    .bind(SEED)
    .execute(connection)
    .await
    .map_err(Fault::from)?;
    Ok(())
}

/// Lets a run begin, inside a transaction that locks its session: a session has one open run, but for those that are
/// dispatched together, and each follows the last one. Returns the conflict, if any.
pub(crate) async fn begin(
    connection: &mut PgConnection,
    new: &RunSummary,
) -> Result<Option<LogError>, LogError> {
    let follows = new.follows.as_ref().map(|run| encode_text(run.as_str()).into_owned());
    let of_new = RunToOpen { run: new, follows };
    // The last of the transcript, where it is open or not the one to follow; or an open branch of another run.
    let beside = of_new
        .find(
            connection,
            "(SELECT run FROM (SELECT run, state, follows FROM backstop.runs \
             WHERE session = $1 AND parent IS NULL AND branch_of IS NULL AND run <> $2 \
             ORDER BY id DESC LIMIT 1) AS last \
             WHERE CASE run WHEN $3 THEN follows IS DISTINCT FROM $4 \
             ELSE $2 <> $3 OR state IN ('running', 'waiting_approval', 'parked') \
             OR run IS DISTINCT FROM $4 END) \
             UNION ALL (SELECT run FROM backstop.runs WHERE session = $1 AND run <> $2 \
             AND branch_of <> $3 AND branch_of IS NOT NULL \
             AND state IN ('running', 'waiting_approval', 'parked') LIMIT 1) LIMIT 1",
        )
        .await?;
    Ok(beside.map(|other| of_new.busy(other)))
}

/// Lets a run be reopened, inside a transaction that locks its session, if no other run follows it and no other run is
/// open. Returns the conflict, if any.
pub(crate) async fn reopen(
    connection: &mut PgConnection,
    run: &RunSummary,
) -> Result<Option<LogError>, LogError> {
    let reopened = RunToOpen { run, follows: None };
    let by = reopened
        .find(
            connection,
            "SELECT run FROM backstop.runs WHERE session = $1 AND parent IS NULL \
             AND id > (SELECT id FROM backstop.runs WHERE run = $2) AND follows = $2 \
             AND ($3::text IS NOT NULL OR $4::text IS NULL) ORDER BY id LIMIT 1",
        )
        .await?;
    if let Some(by) = by {
        return Ok(Some(LogError::followed_run(run.run.clone(), by)));
    }
    let beside = reopened
        .find(
            connection,
            "(SELECT run FROM backstop.runs WHERE session = $1 AND parent IS NULL AND branch_of IS NULL \
             AND run <> $2 AND run <> $3 AND state IN ('running', 'waiting_approval', 'parked') LIMIT 1) \
             UNION ALL (SELECT run FROM backstop.runs WHERE session = $1 AND run <> $2 \
             AND branch_of <> $3 AND branch_of IS NOT NULL AND $4::text IS NULL \
             AND state IN ('running', 'waiting_approval', 'parked') LIMIT 1) LIMIT 1",
        )
        .await?;
    Ok(beside.map(|other| reopened.busy(other)))
}

/// A run that is to be open.
struct RunToOpen<'a> {
    run: &'a RunSummary,
    follows: Option<String>,
}

impl RunToOpen<'_> {
    /// Looks for a run: `$1` is the session, `$2` this run, `$3` the first that began of those that it was
    /// dispatched together with, `$4` the run that it follows.
    async fn find(
        &self,
        connection: &mut PgConnection,
        which: &'static str,
    ) -> Result<Option<RunId>, LogError> {
        let RunSummary { run, session, branch_of, .. } = self.run;
        let found: Option<String> = sqlx::query_scalar(which)
            .bind(&*encode_text(session.as_str()))
            .bind(&*encode_text(run.as_str()))
            .bind(&*encode_text(branch_of.as_ref().unwrap_or(run).as_str()))
            .bind(self.follows.as_deref())
            .fetch_optional(connection)
            .await
            .map_err(Fault::from)?;
        Ok(found.map(read).map(Into::into))
    }

    fn busy(&self, other: RunId) -> LogError {
        LogError::session_busy(self.run.session.clone(), other)
    }
}
