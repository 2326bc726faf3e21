//! Admission of runs without a caller: beginning and reopening in a session.

use backstop_event_log::{LogError, RunSummary};
use layer0::id::RunId;
use sqlx::SqliteConnection;

use crate::job_error::JobError;

/// Lets a run begin whose row is there already: a session has one open run, but for those that are
/// dispatched together, and each follows the last one.
pub(crate) async fn begin(
    connection: &mut SqliteConnection,
    new: &RunSummary,
) -> Result<(), JobError> {
    let follows = new.follows.as_ref().map(|run| run.as_str().to_owned());
    let of_new = RunToOpen { run: new, follows };
    // The last of the transcript, where it is open or not the one to follow.
    let last = "SELECT run FROM (SELECT run, state, summary FROM runs \
        WHERE session = $1 AND parent IS NULL AND branch_of IS NULL AND run <> $2 ORDER BY id DESC LIMIT 1) \
        WHERE CASE run WHEN $3 \
            THEN CASE WHEN json_valid(summary) THEN json_extract(summary, '$.follows') END IS NOT $4 \
            ELSE $2 <> $3 OR state IN ('running', 'waiting_approval', 'parked') OR run IS NOT $4 END";
    of_new.refuse_beside(&mut *connection, last).await?;
    of_new.refuse_beside(connection, BRANCHES).await
}

/// Lets a run be reopened if no other run follows it and no other run is open. Runs that follow it began later.
pub(crate) async fn reopen(
    connection: &mut SqliteConnection,
    run: &RunSummary,
) -> Result<(), JobError> {
    let reopened = RunToOpen { run, follows: None };
    let follows = "SELECT run FROM runs WHERE session = $1 AND parent IS NULL \
        AND id > (SELECT id FROM runs WHERE run = $2) AND json_valid(summary) \
        AND json_extract(summary, '$.follows') = $2 ORDER BY id LIMIT 1";
    if let Some(by) = reopened.find(&mut *connection, follows).await? {
        return Err(JobError::Log(LogError::followed_run(run.run.clone(), by)));
    }
    let open = "SELECT run FROM runs WHERE session = $1 AND parent IS NULL AND branch_of IS NULL \
        AND run <> $2 AND run <> $3 AND state IN ('running', 'waiting_approval', 'parked') LIMIT 1";
    reopened.refuse_beside(&mut *connection, open).await?;
    reopened.refuse_beside(connection, BRANCHES).await
}

/// The open branches of other runs.
const BRANCHES: &str = "SELECT run FROM runs WHERE session = $1 AND run <> $2 AND branch_of <> $3 \
    AND branch_of IS NOT NULL AND state IN ('running', 'waiting_approval', 'parked') LIMIT 1";

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
        connection: &mut SqliteConnection,
        which: &'static str,
    ) -> Result<Option<RunId>, JobError> {
        let RunSummary { run, session, branch_of, .. } = self.run;
        let found: Option<String> = sqlx::query_scalar(which)
            .bind(session.as_str())
            .bind(run.as_str())
            .bind(branch_of.as_ref().unwrap_or(run).as_str())
            .bind(self.follows.as_deref())
            .fetch_optional(connection)
            .await?;
        Ok(found.map(Into::into))
    }

    async fn refuse_beside(
        &self,
        connection: &mut SqliteConnection,
        which: &'static str,
    ) -> Result<(), JobError> {
        match self.find(connection, which).await? {
            Some(other) => {
                Err(JobError::Log(LogError::session_busy(self.run.session.clone(), other)))
            }
            None => Ok(()),
        }
    }
}
