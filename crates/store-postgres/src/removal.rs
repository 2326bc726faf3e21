//! Taking runs away: by age, by name, or with their session.

use std::time::Duration;

use async_trait::async_trait;
use backstop_error_store::StoreError;
use backstop_event_log::{RunState, Subscription};
use backstop_retention::{
    Forgotten, OldRun, Removal, RemoveError, Removed, RunRow, RunShelf, Tombstone,
};
use layer0::Timestamp;
use layer0::event::Hash;
use layer0::id::{RunId, SessionId};
use layer0::state::Scope;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use crate::database::Database;
use crate::fault::Fault;
use crate::prune::{Kind, Whose, take_all};
use crate::text::{column, stored};
use crate::transact::{Work, transact};
use crate::{run_rows, state_removal, subscriptions};

/// How many events one transaction takes away.
const BATCH: i64 = 512;

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
        backstop_retention::prune_runs(self, age, states, now).await
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
        backstop_retention::delete_run(self, run).await
    }

    /// Takes away everything of a session: its runs, their errors and results, its state. Runs that were copied
    /// from it hold what was copied; they go too with `with_forks`, else they are named. What is left
    /// is a [`Tombstone`] of each run. What the server keeps of old rows goes with the next vacuum, and with its
    /// old write-ahead log and backups.
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
        backstop_retention::forget_session(self, session, by, with_forks, now).await
    }

    /// Returns what is left of a run that was forgotten.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    pub async fn tombstone(&self, run: &RunId) -> Result<Option<Tombstone>, StoreError> {
        let row =
            sqlx::query("SELECT head, at, forgotten_by FROM backstop.tombstones WHERE run = $1")
                .bind(&*stored(run.as_str()))
                .fetch_optional(&mut *self.pool().lend().await?)
                .await
                .map_err(Fault::from)?;
        let Some(row) = row else { return Ok(None) };
        let head: &[u8] = row.try_get("head").map_err(Fault::from)?;
        let changed = |_| StoreError::Failed("the hash of a tombstone has another length".into());
        let head = head.try_into().map(Hash).map_err(changed)?;
        let at = Timestamp::from_millis(row.try_get("at").map_err(Fault::from)?);
        let by = column(&row, "forgotten_by").map_err(Fault::from)?;
        Ok(Some(Tombstone::new(run.clone(), head, at, by)))
    }

    async fn sweep_events(&self, run_id: i64) -> Result<(), StoreError> {
        let pool = self.for_writing()?;
        while transact(pool, self.options().patience, &SweepEvents(run_id)).await? > 0 {}
        Ok(())
    }
}

#[async_trait]
impl RunShelf for Database {
    async fn sweep(&self) -> Result<(), StoreError> {
        let left = sqlx::query("SELECT run_id, run FROM backstop.removed");
        let left = left.fetch_all(&mut *self.pool().lend().await?).await.map_err(Fault::from)?;
        for row in left {
            let run = column(&row, "run").map_err(Fault::from)?;
            for kind in Kind::ALL {
                take_all(self.for_writing()?, kind, Whose::Run(&run), true).await?;
            }
            self.sweep_events(row.try_get("run_id").map_err(Fault::from)?).await?;
        }
        Ok(())
    }

    async fn old_runs(
        &self,
        until: Timestamp,
        states: &[RunState],
        after: Option<&OldRun>,
    ) -> Result<Vec<OldRun>, StoreError> {
        run_rows::old(self.pool(), until, states, after).await
    }

    async fn connected_runs(&self, runs: &[RunId]) -> Result<Vec<RunRow>, StoreError> {
        run_rows::connected(self.pool(), runs).await
    }

    async fn runs_of(&self, sessions: &[SessionId]) -> Result<Vec<RunRow>, StoreError> {
        run_rows::of_sessions(self.pool(), sessions).await
    }

    async fn segments(&self) -> Result<Vec<RunRow>, StoreError> {
        run_rows::segments(self.pool()).await
    }

    async fn subscriptions(&self) -> Result<Vec<Subscription>, StoreError> {
        let subscriptions = subscriptions::all(self.pool()).await;
        subscriptions.map_err(|error| StoreError::Failed(error.into()))
    }

    async fn remove(
        &self,
        row: &RunRow,
        removal: &Removal,
        removed: &mut Removed,
    ) -> Result<(), StoreError> {
        let pool = self.for_writing()?;
        if !transact(pool, self.options().patience, &RemoveRun { row, removal }).await? {
            // It was written to in the meantime.
            return Ok(());
        }
        let (whose, is_noted) = (Whose::Run(row.run.as_str()), !removal.is_silent);
        removed.errors += take_all(pool, &Kind::ERRORS, whose, is_noted).await?;
        removed.results += take_all(pool, &Kind::RESULTS, whose, is_noted).await?;
        self.sweep_events(row.id).await?;
        removed.runs.push(row.run.clone());
        Ok(())
    }

    async fn copies_of(&self, session: &SessionId) -> Result<Vec<SessionId>, StoreError> {
        let rows = sqlx::query(
            "WITH RECURSIVE family (session) AS (SELECT $1::text COLLATE \"C\" UNION SELECT lineage.session \
             FROM backstop.lineage AS lineage JOIN family ON lineage.ancestor = family.session) \
             SELECT session FROM family",
        )
        .bind(&*stored(session.as_str()))
        .fetch_all(&mut *self.pool().lend().await?)
        .await
        .map_err(Fault::from)?;
        let read = |row: &PgRow| Ok(column(row, "session").map_err(Fault::from)?.into());
        rows.iter().map(read).collect()
    }

    async fn take_session(
        &self,
        session: &SessionId,
        is_silent: bool,
        removed: &mut Removed,
    ) -> Result<(), StoreError> {
        let pool = self.for_writing()?;
        let whose = Whose::Session(session.as_str());
        removed.errors += take_all(pool, &Kind::ERRORS, whose, !is_silent).await?;
        removed.results += take_all(pool, &Kind::RESULTS, whose, !is_silent).await?;
        removed.state += state_removal::clear(pool, &Scope::Session(session.clone())).await?;
        let queued = transact(pool, self.options().patience, &TakeQueuedOf(session)).await?;
        removed.runs.extend(queued);
        if is_silent {
            let mut lent = pool.lend().await?;
            sqlx::query("DELETE FROM backstop.expired WHERE session = $1")
                .bind(&*stored(session.as_str()))
                .execute(&mut *lent)
                .await
                .map_err(Fault::from)?;
            lent.end().await?;
        }
        Ok(())
    }
}

/// Takes the row of a run away if it is as it was; its texts and events come after it.
struct RemoveRun<'a> {
    row: &'a RunRow,
    removal: &'a Removal,
}

#[async_trait]
impl Work for RemoveRun<'_> {
    type Done = bool;
    type Error = StoreError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<bool, StoreError> {
        let Self { row, removal } = self;
        let run = stored(row.run.as_str());
        let queued = sqlx::query(
            "WITH going AS (SELECT id, run FROM backstop.runs WHERE id = $1 AND run = $2 AND last_seq = $3 \
             AND ($5 OR state IN ('finished', 'failed')) AND ($4 OR NOT EXISTS \
             (SELECT 1 FROM backstop.runs AS later WHERE later.earlier = $2)) FOR UPDATE) \
             INSERT INTO backstop.removed SELECT id, run FROM going",
        )
        .bind(row.id)
        .bind(&*run)
        .bind(row.last_seq)
        .bind(removal.forgotten.is_some())
        .bind(removal.is_segment)
        .execute(&mut *connection)
        .await
        .map_err(Fault::from)?;
        if queued.rows_affected() == 0 {
            return Ok(false);
        }
        if let Some((by, at)) = &removal.forgotten {
            sqlx::query(
                "INSERT INTO backstop.tombstones SELECT run, head, $2, $3 FROM backstop.runs \
                 WHERE id = $1 ON CONFLICT DO NOTHING",
            )
            .bind(row.id)
            .bind(at.as_millis())
            .bind(&*stored(by))
            .execute(&mut *connection)
            .await
            .map_err(Fault::from)?;
        }
        for statement in [
            "UPDATE backstop.start_keys SET removed = true WHERE run = $1",
            "DELETE FROM backstop.approvals WHERE run = $1",
            "DELETE FROM backstop.expired_approvals WHERE run = $1",
            "DELETE FROM backstop.inbox WHERE run = $1",
            "DELETE FROM backstop.queue WHERE run = $1",
            "DELETE FROM backstop.settled WHERE run = $1",
            "DELETE FROM backstop.state WHERE scope = 'run:' || $1",
            "DELETE FROM backstop.labels WHERE run_id = (SELECT id FROM backstop.runs WHERE run = $1)",
            "DELETE FROM backstop.attempts WHERE run_id = (SELECT id FROM backstop.runs WHERE run = $1)",
            "DELETE FROM backstop.runs WHERE run = $1",
        ] {
            sqlx::query(statement)
                .bind(&*run)
                .execute(&mut *connection)
                .await
                .map_err(Fault::from)?;
        }
        sqlx::query(
            "DELETE FROM backstop.lineage WHERE session = $1 \
             AND NOT EXISTS (SELECT 1 FROM backstop.runs WHERE session = $1)",
        )
        .bind(&*stored(row.session.as_str()))
        .execute(connection)
        .await
        .map_err(Fault::from)?;
        Ok(true)
    }
}

/// Takes the runs of a session out of the queue, with what they are asked.
struct TakeQueuedOf<'a>(&'a SessionId);

#[async_trait]
impl Work for TakeQueuedOf<'_> {
    type Done = Vec<RunId>;
    type Error = StoreError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<Vec<RunId>, StoreError> {
        let rows = sqlx::query(
            "WITH gone AS (DELETE FROM backstop.queue WHERE session = $1 RETURNING run), \
             marked AS (UPDATE backstop.start_keys SET removed = true FROM gone WHERE start_keys.run = gone.run) \
             SELECT run FROM gone ORDER BY run DESC",
        )
        .bind(&*stored(self.0.as_str()))
        .fetch_all(connection)
        .await
        .map_err(Fault::from)?;
        rows.iter().map(|row| Ok(column(row, "run").map_err(Fault::from)?.into())).collect()
    }
}

/// Takes some events of a removed run away, and says how many; 0 when none are left.
struct SweepEvents(i64);

#[async_trait]
impl Work for SweepEvents {
    type Done = i64;
    type Error = StoreError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<i64, StoreError> {
        // A cursor may stand behind what was the newest event.
        let many: i64 = sqlx::query_scalar(
            "WITH gone AS (DELETE FROM backstop.events WHERE run_id = $1 AND seq IN \
             (SELECT seq FROM backstop.events WHERE run_id = $1 ORDER BY seq DESC LIMIT $2) \
             RETURNING place), \
             known AS (UPDATE backstop.meta SET removed_until = newest.place FROM \
             (SELECT max(place) AS place FROM gone) AS newest WHERE removed_until < newest.place) \
             SELECT count(*) FROM gone",
        )
        .bind(self.0)
        .bind(BATCH)
        .fetch_one(&mut *connection)
        .await
        .map_err(Fault::from)?;
        if many == 0 {
            for statement in [
                "DELETE FROM backstop.refers WHERE run = \
                 (SELECT run FROM backstop.removed WHERE run_id = $1)",
                "DELETE FROM backstop.positions WHERE subscription IN \
                 (SELECT name FROM backstop.subscriptions) AND run = \
                 (SELECT run FROM backstop.removed WHERE run_id = $1)",
                "DELETE FROM backstop.removed WHERE run_id = $1",
            ] {
                sqlx::query(statement)
                    .bind(self.0)
                    .execute(&mut *connection)
                    .await
                    .map_err(Fault::from)?;
            }
        }
        Ok(many)
    }
}
