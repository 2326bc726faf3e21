//! Removals of runs on request: prune, delete, forget.

use std::time::Duration;

use async_trait::async_trait;
use backstop_error_store::StoreError;
use backstop_event_log::{RunState, Subscription};
use backstop_retention::{
    Forgotten, OldRun, Removal, RemoveError, Removed, RunRow, RunShelf, Tombstone, session_scopes,
};
use layer0::Timestamp;
use layer0::event::Hash;
use layer0::id::{RunId, SessionId};
use sqlx::Row;

use crate::database::Database;
use crate::fault::Fault;
use crate::prune::{PruneStatements, Whose, take_all};
use crate::removal::{Mark, Unmark};
use crate::rows::to_i64;
use crate::state::{clear_in_steps, merge_words};
use crate::subscriptions;
use crate::{removal, run_rows};

impl Database {
    /// Removes runs that ended longer ago than `age`, with their texts; only in these states, or in any if there are
    /// none.
    ///
    /// An open run is kept, and so is a run that is connected with a kept run: as its caller, its child run or the run
    /// that it continues.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, each run is either complete or gone; the rest of a removed run is removed by the next
    /// pruning.
    pub async fn prune_runs(
        &self,
        age: Duration,
        states: &[RunState],
        now: Timestamp,
    ) -> Result<Removed, StoreError> {
        let removed = backstop_retention::prune_runs(self, age, states, now).await?;
        if !removed.runs.is_empty() {
            merge_words(self.for_writing()?).await?;
            self.checkpoint().await?;
        }
        Ok(removed)
    }

    /// Removes a run with its child runs and their texts.
    ///
    /// # Errors
    ///
    /// Any variant of [`RemoveError`] except [`RemoveError::NoSession`].
    ///
    /// # Cancel safety
    ///
    /// As [`Database::prune_runs`].
    pub async fn delete_run(&self, run: &RunId) -> Result<Removed, RemoveError> {
        let removed = backstop_retention::delete_run(self, run).await?;
        self.clear_traces(None).await?;
        Ok(removed)
    }

    /// Removes everything of a session: its runs with their errors and results, and its state.
    ///
    /// Runs copied from the session contain copied data: with `with_forks` they are removed too, otherwise they are
    /// listed in the result. A [`Tombstone`] of each run remains.
    ///
    /// # Errors
    ///
    /// [`RemoveError::NoSession`], [`RemoveError::Open`], [`RemoveError::Store`].
    ///
    /// # Cancel safety
    ///
    /// As [`Database::prune_runs`]; another call forgets the rest.
    pub async fn forget_session(
        &self,
        session: &SessionId,
        by: &str,
        with_forks: bool,
        now: Timestamp,
    ) -> Result<Forgotten, RemoveError> {
        let forgotten =
            backstop_retention::forget_session(self, session, by, with_forks, now).await?;
        self.clear_traces(None).await?;
        Ok(forgotten)
    }

    /// Overwrites removed data in the word index, in a file that an older version wrote, and in the write-ahead log. A
    /// run that the caller has claimed does not delay this.
    pub(crate) async fn clear_traces(&self, claimed: Option<&RunId>) -> Result<(), StoreError> {
        merge_words(self.for_writing()?).await?;
        self.clean(claimed).await?;
        self.checkpoint().await
    }

    /// Rewrites a file of an older version, which did not overwrite deleted or moved rows. Writers wait for seconds
    /// meanwhile, so that this is postponed while another run is active.
    async fn clean(&self, claimed: Option<&RunId>) -> Result<(), StoreError> {
        if self.is_in_memory() || self.is_clean().await? {
            return Ok(());
        }
        if self.is_active_beside(claimed).await? {
            tracing::warn!(
                path = %self.path().display(),
                "runs are active: copies of removed rows that an older version left in the file stay until it is \
                 vacuumed"
            );
            return Ok(());
        }
        self.vacuum().await?;
        Ok(())
    }

    async fn is_clean(&self) -> Result<bool, StoreError> {
        let is_clean = sqlx::query_scalar("SELECT is_clean FROM erasing");
        Ok(is_clean.fetch_one(self.readers()).await.map_err(Fault::from)?)
    }

    /// Returns whether a live process owns another run than this one. Runs of a process that died still have an owner.
    async fn is_active_beside(&self, claimed: Option<&RunId>) -> Result<bool, StoreError> {
        let owners: Vec<String> = sqlx::query_scalar(
            "SELECT DISTINCT owner FROM runs WHERE owner IS NOT NULL AND run IS NOT $1",
        )
        .bind(claimed.map(RunId::as_str))
        .fetch_all(self.readers())
        .await
        .map_err(Fault::from)?;
        Ok(owners.iter().any(|owner| self.is_alive(owner)))
    }

    /// Returns the tombstone of a forgotten run.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    pub async fn tombstone(&self, run: &RunId) -> Result<Option<Tombstone>, StoreError> {
        let row = sqlx::query("SELECT head, at, forgotten_by FROM tombstones WHERE run = $1")
            .bind(run.as_str())
            .fetch_optional(self.readers())
            .await
            .map_err(Fault::from)?;
        let Some(row) = row else { return Ok(None) };
        let head: &[u8] = row.try_get("head").map_err(Fault::from)?;
        let changed = |_| StoreError::Failed("the hash of a tombstone has another length".into());
        let head = head.try_into().map(Hash).map_err(changed)?;
        let at = Timestamp::from_millis(row.try_get("at").map_err(Fault::from)?);
        let by: String = row.try_get("forgotten_by").map_err(Fault::from)?;
        Ok(Some(Tombstone::new(run.clone(), head, at, by)))
    }
}

#[async_trait]
impl RunShelf for Database {
    async fn sweep(&self) -> Result<(), StoreError> {
        removal::sweep(self).await
    }

    async fn old_runs(
        &self,
        until: Timestamp,
        states: &[RunState],
        after: Option<&OldRun>,
    ) -> Result<Vec<OldRun>, StoreError> {
        run_rows::old(self.readers(), until, states, after).await
    }

    async fn connected_runs(&self, runs: &[RunId]) -> Result<Vec<RunRow>, StoreError> {
        run_rows::read_connected(self.readers(), runs).await
    }

    async fn session_runs(&self, sessions: &[SessionId]) -> Result<Vec<RunRow>, StoreError> {
        run_rows::of_sessions(self.readers(), sessions).await
    }

    async fn segments(&self) -> Result<Vec<RunRow>, StoreError> {
        run_rows::segments(self.readers()).await
    }

    async fn subscriptions(&self) -> Result<Vec<Subscription>, StoreError> {
        let subscriptions = subscriptions::all(self.readers()).await;
        Ok(subscriptions?)
    }

    async fn remove(
        &self,
        tree: &[&RunRow],
        removal: &Removal,
        removed: &mut Removed,
    ) -> Result<bool, StoreError> {
        removal::remove(self, tree, removal, removed).await
    }

    async fn mark_forgetting(&self, session: &SessionId) -> Result<i64, StoreError> {
        Ok(to_i64(self.for_writing()?.perform(Mark(session.clone())).await?))
    }

    async fn unmark_forgetting(&self, marks: &[i64]) -> Result<(), StoreError> {
        self.for_writing()?.perform(Unmark(marks.to_vec())).await?;
        Ok(())
    }

    async fn taken_run(&self, _: &[SessionId]) -> Result<Option<RunId>, StoreError> {
        // A file has no queue.
        Ok(None)
    }

    async fn queued_runs(&self, _: &SessionId) -> Result<Vec<RunId>, StoreError> {
        // A file has no queue.
        Ok(Vec::new())
    }

    async fn session_family(&self, session: &SessionId) -> Result<Vec<SessionId>, StoreError> {
        let sessions: Vec<String> = sqlx::query_scalar(
            "WITH RECURSIVE family (session) AS (SELECT $1 UNION SELECT lineage.session \
             FROM lineage JOIN family ON lineage.ancestor = family.session) \
             SELECT session FROM family",
        )
        .bind(session.as_str())
        .fetch_all(self.readers())
        .await
        .map_err(Fault::from)?;
        Ok(sessions.into_iter().map(Into::into).collect())
    }

    async fn take_session(
        &self,
        session: &SessionId,
        removal: &Removal,
        removed: &mut Removed,
    ) -> Result<(), StoreError> {
        let (whose, is_silent) = (Whose::Session(session.as_str()), removal.is_silent);
        removed.errors += take_all(self, &PruneStatements::ERRORS, whose, !is_silent).await?;
        for scope in session_scopes(session) {
            removed.state += clear_in_steps(self.for_writing()?, &scope).await?;
        }
        removed.results += take_all(self, &PruneStatements::RESULTS, whose, !is_silent).await?;
        if is_silent {
            self.for_writing()?.perform(Unexpire(session.clone())).await?;
        }
        Ok(())
    }
}

/// Records that the file has no copies of removed rows any more.
pub(crate) struct MarkClean;

#[async_trait]
impl crate::chore::Chore for MarkClean {
    async fn perform(
        &self,
        connection: &mut sqlx::SqliteConnection,
    ) -> Result<u64, crate::job_error::JobError> {
        let clean = sqlx::query("UPDATE erasing SET is_clean = 1").execute(connection).await?;
        Ok(clean.rows_affected())
    }
}

/// Removes the expired ids of a session's texts.
struct Unexpire(SessionId);

#[async_trait]
impl crate::chore::Chore for Unexpire {
    async fn perform(
        &self,
        connection: &mut sqlx::SqliteConnection,
    ) -> Result<u64, crate::job_error::JobError> {
        let gone = sqlx::query("DELETE FROM expired WHERE session = $1")
            .bind(self.0.as_str())
            .execute(connection)
            .await?;
        Ok(gone.rows_affected())
    }
}
