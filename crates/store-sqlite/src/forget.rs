//! What people ask of the runs of a database: prune, delete, forget.

use std::time::Duration;

use backstop_error_store::StoreError;
use backstop_event_log::RunState;
use backstop_retention::{
    Forgotten, Fork, RemoveError, Removed, RunRow, Tombstone, removable, why_kept,
};
use layer0::Timestamp;
use layer0::event::Hash;
use layer0::id::{RunId, SessionId};
use layer0::state::Scope;
use sqlx::Row;

use crate::database::Database;
use crate::fault::Fault;
use crate::prune::{Kind, Whose, take_all};
use crate::removal::{self, Removal, all_runs, remove};
use crate::state::Clear;

impl Database {
    /// Takes away runs that ended longer ago than `age`, with what they stored; of all states that
    /// are over, or of these. An open run stays, and one that a kept run goes on with, dispatched or
    /// was dispatched by.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves each run whole or gone; the rest of one that is gone is taken away
    /// by the next pruning.
    pub async fn prune_runs(
        &self,
        age: Duration,
        states: &[RunState],
        now: Timestamp,
    ) -> Result<Removed, StoreError> {
        removal::prune_runs(self, age, states, now).await
    }

    /// Takes a run away, with the runs that it dispatched and what they stored.
    ///
    /// # Errors
    ///
    /// Any variant of [`RemoveError`] but [`RemoveError::NoSession`].
    ///
    /// # Cancel safety
    ///
    /// As [`Database::prune_runs`].
    pub async fn delete_run(&self, run: &RunId) -> Result<Removed, RemoveError> {
        removal::sweep(self).await?;
        let rows = all_runs(self).await?;
        let Some(row) = rows.iter().find(|row| row.run == *run) else {
            return Err(RemoveError::NoRun(run.clone()));
        };
        let going = removable(&rows, |root| root.run == *run);
        if !going.iter().any(|going| going.run == *run) {
            return Err(why_kept(&rows, row));
        }
        let mut removed = Removed::default();
        for row in going {
            remove(self, row, &Removal::default(), &mut removed).await?;
        }
        Ok(removed)
    }

    /// Takes away everything of a session: its runs, their errors and results, its state. Runs that were copied
    /// from it hold what was copied; they go too with `with_forks`, else they are named. What is left
    /// is a [`Tombstone`] of each run.
    ///
    /// # Errors
    ///
    /// [`RemoveError::NoSession`], [`RemoveError::Open`], [`RemoveError::Store`].
    ///
    /// # Cancel safety
    ///
    /// As [`Database::prune_runs`]; ask again to forget the rest.
    pub async fn forget_session(
        &self,
        session: &SessionId,
        by: &str,
        with_forks: bool,
        now: Timestamp,
    ) -> Result<Forgotten, RemoveError> {
        removal::sweep(self).await?;
        let copies = self.copies_of(session).await?;
        let rows = all_runs(self).await?;
        let is_copy = |row: &&RunRow| copies.contains(&row.session) && row.session != *session;
        let forks: Vec<Fork> = match with_forks {
            true => Vec::new(),
            false => rows
                .iter()
                .filter(is_copy)
                .map(|row| Fork::new(row.run.clone(), row.session.clone()))
                .collect(),
        };
        let sessions = if with_forks { copies } else { vec![session.clone()] };
        let going: Vec<&RunRow> =
            rows.iter().filter(|row| sessions.contains(&row.session)).collect();
        if let Some(open) = going.iter().find(|row| row.is_open()) {
            return Err(RemoveError::Open(open.run.clone()));
        }
        // A copy that stays finds that what it refers to has gone.
        let removal = Removal {
            forgotten: Some((by.to_owned(), now)),
            is_silent: forks.is_empty(),
            ..Removal::default()
        };
        let mut removed = Removed::default();
        let is_known = !going.is_empty();
        for row in going {
            remove(self, row, &removal, &mut removed).await?;
        }
        for session in &sessions {
            let whose = Whose::Session(session.as_str());
            removed.errors += take_all(self, &Kind::ERRORS, whose, !removal.is_silent).await?;
            let state = Clear(Scope::Session(session.clone()));
            removed.state += self.for_writing()?.perform(state).await?;
            removed.results += take_all(self, &Kind::RESULTS, whose, !removal.is_silent).await?;
            if removal.is_silent {
                self.for_writing()?.perform(Unexpire(session.clone())).await?;
            }
        }
        if !is_known && removed.errors + removed.results + removed.state == 0 {
            return Err(RemoveError::NoSession(session.clone()));
        }
        self.checkpoint().await?;
        Ok(Forgotten::new(removed, forks))
    }

    /// Returns what is left of a run that was forgotten.
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

    /// Returns a session, and those that were copied from it or from a copy.
    async fn copies_of(&self, session: &SessionId) -> Result<Vec<SessionId>, StoreError> {
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
}

/// Forgets the ids of what a session stored.
struct Unexpire(SessionId);

#[async_trait::async_trait]
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
