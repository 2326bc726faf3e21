//! Removal of runs: by age, by id, or with their session.

use std::time::Duration;

use async_trait::async_trait;
use backstop_error_store::StoreError;
use backstop_event_log::{LogError, RunState, Subscription};
use backstop_retention::{
    Forgotten, OldRun, Removal, RemoveError, Removed, RunRow, RunShelf, Tombstone, session_scopes,
};
use layer0::Timestamp;
use layer0::event::Hash;
use layer0::failure::Chain;
use layer0::id::{RunId, SessionId};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use crate::database::Database;
use crate::erasure::{count_one, erase_all, failures_about, failures_left};
use crate::fault::Fault;
use crate::prune::{PruneStatements, Whose, take_all};
use crate::server_time::cap_at_server_time;
use crate::sweep::SweepEvents;
use crate::text::{column, encode_text, read};
use crate::transact::{TransactionWork, transact};
use crate::{expired, run_rows, sessions, state_removal, subscriptions};

impl Database {
    /// Removes runs that ended longer ago than `age`, with their texts; only in these states, or in any if there are
    /// none.
    ///
    /// An open run is kept, and so is a run that is connected with a kept run: as its caller, its child run or the run
    /// that it continues. If `now` is ahead of the server's clock, the server's time is used.
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
        let now =
            cap_at_server_time(&mut *self.pool().lend().await?, now).await.map_err(Fault::from)?;
        backstop_retention::prune_runs(self, age, states, now).await
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
        backstop_retention::delete_run(self, run).await
    }

    /// Removes everything of a session: its runs with their errors and results, and its state.
    ///
    /// Runs copied from the session contain copied data: with `with_forks` they are removed too, otherwise they are
    /// listed in the result. A [`Tombstone`] of each run remains. The server removes old rows with the next vacuum, and
    /// with its old write-ahead log and backups.
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
        backstop_retention::forget_session(self, session, by, with_forks, now).await
    }

    /// Returns the tombstone of a forgotten run.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    pub async fn tombstone(&self, run: &RunId) -> Result<Option<Tombstone>, StoreError> {
        let row =
            sqlx::query("SELECT head, at, forgotten_by FROM backstop.tombstones WHERE run = $1")
                .bind(&*encode_text(run.as_str()))
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
        let mut lent = self.for_writing()?.lend().await?;
        sqlx::query("DELETE FROM backstop.forgetting WHERE at < now() - interval '1 hour'")
            .execute(&mut *lent)
            .await
            .map_err(Fault::from)?;
        lent.end().await?;
        let left = sqlx::query("SELECT run_id, run, is_silent FROM backstop.removed");
        let left = left.fetch_all(&mut *self.pool().lend().await?).await.map_err(Fault::from)?;
        for row in left {
            let run = column(&row, "run").map_err(Fault::from)?;
            let is_silent: bool = row.try_get("is_silent").map_err(Fault::from)?;
            for kind in PruneStatements::ALL {
                take_all(self, kind, Whose::Run(&run), !is_silent).await?;
            }
            self.sweep_events(row.try_get("run_id").map_err(Fault::from)?).await?;
        }
        match failures_left(self).await {
            Ok(failures) => Ok(erase_all(self, &failures).await?),
            // Nothing else depends on the key.
            Err(error @ LogError::KeyMissing { .. }) => {
                let error = Chain(&error);
                tracing::warn!(%error, "failure messages of behaviours about removed runs are left");
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
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
        run_rows::read_connected(self.pool(), runs).await
    }

    async fn session_runs(&self, sessions: &[SessionId]) -> Result<Vec<RunRow>, StoreError> {
        run_rows::of_sessions(self.pool(), sessions).await
    }

    async fn segments(&self) -> Result<Vec<RunRow>, StoreError> {
        run_rows::segments(self.pool()).await
    }

    async fn subscriptions(&self) -> Result<Vec<Subscription>, StoreError> {
        Ok(subscriptions::all(self.pool()).await?)
    }

    async fn remove(
        &self,
        tree: &[&RunRow],
        removal: &Removal,
        removed: &mut Removed,
    ) -> Result<bool, StoreError> {
        let (pool, patience) = (self.for_writing()?, self.options().patience);
        // Read before anything is removed, because the key that seals them may be missing.
        let mut failures = Vec::new();
        for row in tree {
            failures.extend(failures_about(self, row.run.as_str()).await?);
        }
        if !transact(pool, patience, &RemoveTree { tree, removal }).await? {
            return Ok(false);
        }
        tree.iter().for_each(|row| self.known_ends().forget(&row.run));
        erase_all(self, &failures).await?;
        for row in tree {
            let (whose, is_noted) = (Whose::Run(row.run.as_str()), !removal.is_silent);
            removed.errors += take_all(self, &PruneStatements::ERRORS, whose, is_noted).await?;
            removed.results += take_all(self, &PruneStatements::RESULTS, whose, is_noted).await?;
            self.sweep_events(row.id).await?;
            removed.runs.push(row.run.clone());
        }
        Ok(true)
    }

    async fn mark_forgetting(&self, session: &SessionId) -> Result<i64, StoreError> {
        transact(self.for_writing()?, self.options().patience, &Mark(session)).await
    }

    async fn unmark_forgetting(&self, marks: &[i64]) -> Result<(), StoreError> {
        let mut lent = self.for_writing()?.lend().await?;
        sqlx::query("DELETE FROM backstop.forgetting WHERE id = ANY($1)")
            .bind(marks)
            .execute(&mut *lent)
            .await
            .map_err(Fault::from)?;
        Ok(lent.end().await?)
    }

    async fn taken_run(&self, sessions: &[SessionId]) -> Result<Option<RunId>, StoreError> {
        let sessions: Vec<String> =
            sessions.iter().map(|session| encode_text(session.as_str()).into_owned()).collect();
        let taken: Option<String> = sqlx::query_scalar(
            "SELECT run FROM backstop.queue AS queue WHERE session = ANY($1) AND owner IS NOT NULL \
             AND NOT EXISTS (SELECT 1 FROM backstop.runs AS runs WHERE runs.run = queue.run) \
             ORDER BY number LIMIT 1",
        )
        .bind(sessions)
        .fetch_optional(&mut *self.pool().lend().await?)
        .await
        .map_err(Fault::from)?;
        Ok(taken.map(read).map(Into::into))
    }

    async fn queued_runs(&self, session: &SessionId) -> Result<Vec<RunId>, StoreError> {
        let queued: Vec<String> = sqlx::query_scalar(
            "SELECT run FROM backstop.queue WHERE session = $1 ORDER BY run DESC",
        )
        .bind(&*encode_text(session.as_str()))
        .fetch_all(&mut *self.pool().lend().await?)
        .await
        .map_err(Fault::from)?;
        Ok(queued.into_iter().map(|run| read(run).into()).collect())
    }

    async fn session_family(&self, session: &SessionId) -> Result<Vec<SessionId>, StoreError> {
        let rows = sqlx::query(
            "WITH RECURSIVE family (session) AS (SELECT $1::text COLLATE \"C\" UNION SELECT lineage.session \
             FROM backstop.lineage AS lineage JOIN family ON lineage.ancestor = family.session) \
             SELECT session FROM family",
        )
        .bind(&*encode_text(session.as_str()))
        .fetch_all(&mut *self.pool().lend().await?)
        .await
        .map_err(Fault::from)?;
        let read = |row: &PgRow| Ok(column(row, "session").map_err(Fault::from)?.into());
        rows.iter().map(read).collect()
    }

    async fn take_session(
        &self,
        session: &SessionId,
        removal: &Removal,
        removed: &mut Removed,
    ) -> Result<(), StoreError> {
        let (pool, patience) = (self.for_writing()?, self.options().patience);
        let (whose, is_silent) = (Whose::Session(session.as_str()), removal.is_silent);
        removed.errors += take_all(self, &PruneStatements::ERRORS, whose, !is_silent).await?;
        removed.results += take_all(self, &PruneStatements::RESULTS, whose, !is_silent).await?;
        for scope in session_scopes(session) {
            state_removal::clear(pool, &scope, &mut removed.state).await?;
        }
        if let Some((by, at)) = &removal.forgotten {
            let queued = TakeQueuedOf { session, by, at: *at };
            removed.runs.extend(transact(pool, patience, &queued).await?);
        }
        if is_silent {
            expired::forget_session(pool, session).await?;
        }
        Ok(())
    }
}

/// Removes the rows of runs if they are unchanged; their texts and events follow.
struct RemoveTree<'a> {
    tree: &'a [&'a RunRow],
    removal: &'a Removal,
}

#[async_trait]
impl TransactionWork for RemoveTree<'_> {
    type Done = bool;
    type Error = StoreError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<bool, StoreError> {
        let sessions = self.tree.iter().map(|row| &row.session);
        sessions::lock(connection, sessions).await?;
        if !self.is_unchanged(connection).await? || self.is_followed(connection).await? {
            return Ok(false);
        }
        self.remove_rows(&mut *connection).await?;
        count_one(connection).await?;
        Ok(true)
    }
}

impl RemoveTree<'_> {
    fn names(&self) -> Vec<String> {
        self.tree.iter().map(|row| encode_text(row.run.as_str()).into_owned()).collect()
    }

    /// Locks the rows, and returns whether all of them are unchanged.
    async fn is_unchanged(&self, connection: &mut PgConnection) -> Result<bool, StoreError> {
        let (ids, seqs): (Vec<i64>, Vec<i64>) =
            self.tree.iter().map(|row| (row.id, row.last_seq)).unzip();
        let found: Vec<i64> = sqlx::query_scalar(
            "SELECT runs.id FROM backstop.runs AS runs \
             JOIN unnest($1::bigint[], $2::text[], $3::bigint[]) AS going (id, run, last_seq) \
             ON runs.id = going.id AND runs.run = going.run AND runs.last_seq = going.last_seq \
             WHERE $4 OR state IN ('finished', 'failed') ORDER BY runs.id FOR UPDATE OF runs",
        )
        .bind(ids)
        .bind(self.names())
        .bind(seqs)
        .bind(self.removal.is_segment)
        .fetch_all(connection)
        .await
        .map_err(Fault::from)?;
        Ok(found.len() == self.tree.len())
    }

    /// Returns whether a run that is kept follows one of these; `false` for a run that is forgotten.
    async fn is_followed(&self, connection: &mut PgConnection) -> Result<bool, StoreError> {
        if self.removal.forgotten.is_some() {
            return Ok(false);
        }
        let followed = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM backstop.runs AS later \
             WHERE later.earlier = ANY($1) AND later.run <> ALL($1))",
        );
        Ok(followed.bind(self.names()).fetch_one(connection).await.map_err(Fault::from)?)
    }

    async fn remove_rows(&self, connection: &mut PgConnection) -> Result<(), StoreError> {
        let names = self.names();
        if let Some((by, at)) = &self.removal.forgotten {
            sqlx::query(
                "INSERT INTO backstop.tombstones SELECT run, head, $2, $3 FROM backstop.runs \
                 WHERE run = ANY($1) ON CONFLICT DO NOTHING",
            )
            .bind(&names)
            .bind(at.as_millis())
            .bind(&*encode_text(by))
            .execute(&mut *connection)
            .await
            .map_err(Fault::from)?;
        }
        sqlx::query(
            "INSERT INTO backstop.removed SELECT id, run, $2 FROM backstop.runs WHERE run = ANY($1)",
        )
        .bind(&names)
        .bind(self.removal.is_silent)
        .execute(&mut *connection)
        .await
        .map_err(Fault::from)?;
        for statement in [
            "INSERT INTO backstop.removed_incarnations (incarnation) SELECT incarnation FROM backstop.runs \
             WHERE run = ANY($1) AND incarnation IS NOT NULL ON CONFLICT DO NOTHING",
            "UPDATE backstop.start_keys SET removed = true WHERE run = ANY($1)",
            "DELETE FROM backstop.approvals WHERE run = ANY($1)",
            "DELETE FROM backstop.expired_approvals WHERE run = ANY($1)",
            "DELETE FROM backstop.inbox WHERE run = ANY($1)",
            "DELETE FROM backstop.queue WHERE run = ANY($1)",
            "DELETE FROM backstop.settled WHERE run = ANY($1)",
            "DELETE FROM backstop.lost_tails WHERE run = ANY($1)",
            "DELETE FROM backstop.state WHERE scope IN (SELECT 'run:' || run FROM unnest($1::text[]) AS run)",
            "DELETE FROM backstop.labels WHERE run_id IN (SELECT id FROM backstop.runs WHERE run = ANY($1))",
            "DELETE FROM backstop.attempts WHERE run_id IN (SELECT id FROM backstop.runs WHERE run = ANY($1))",
            "DELETE FROM backstop.erasures WHERE run_id IN (SELECT id FROM backstop.runs WHERE run = ANY($1))",
            "DELETE FROM backstop.delivery_failures WHERE run_id IN (SELECT id FROM backstop.runs WHERE run = ANY($1))",
            "DELETE FROM backstop.runs WHERE run = ANY($1)",
        ] {
            sqlx::query(statement)
                .bind(&names)
                .execute(&mut *connection)
                .await
                .map_err(Fault::from)?;
        }
        let sessions: Vec<String> =
            self.tree.iter().map(|row| encode_text(row.session.as_str()).into_owned()).collect();
        sqlx::query(
            "DELETE FROM backstop.lineage AS lineage WHERE session = ANY($1) \
             AND NOT EXISTS (SELECT 1 FROM backstop.runs WHERE runs.session = lineage.session)",
        )
        .bind(sessions)
        .execute(connection)
        .await
        .map_err(Fault::from)?;
        Ok(())
    }
}

/// Marks a session as being forgotten, and returns the number of the mark.
struct Mark<'a>(&'a SessionId);

#[async_trait]
impl TransactionWork for Mark<'_> {
    type Done = i64;
    type Error = StoreError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<i64, StoreError> {
        sessions::lock(connection, std::iter::once(self.0)).await?;
        let mark = sqlx::query_scalar(
            "INSERT INTO backstop.forgetting (session) VALUES ($1) RETURNING id",
        );
        let mark = mark.bind(&*encode_text(self.0.as_str())).fetch_one(connection).await;
        Ok(mark.map_err(Fault::from)?)
    }
}

/// Removes the runs of a session from the queue, with their tasks. A tombstone of each remains, so that a run that a
/// worker takes at this moment does not start.
struct TakeQueuedOf<'a> {
    session: &'a SessionId,
    by: &'a str,
    at: Timestamp,
}

#[async_trait]
impl TransactionWork for TakeQueuedOf<'_> {
    type Done = Vec<RunId>;
    type Error = StoreError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<Vec<RunId>, StoreError> {
        let rows = sqlx::query(
            "WITH gone AS (DELETE FROM backstop.queue WHERE session = $1 RETURNING run), \
             marked AS (UPDATE backstop.start_keys SET removed = true FROM gone WHERE start_keys.run = gone.run), \
             known AS (INSERT INTO backstop.tombstones SELECT run, $2, $3, $4 FROM gone ON CONFLICT DO NOTHING) \
             SELECT run FROM gone ORDER BY run DESC",
        )
        .bind(&*encode_text(self.session.as_str()))
        .bind(&Hash::default().0[..])
        .bind(self.at.as_millis())
        .bind(&*encode_text(self.by))
        .fetch_all(connection)
        .await
        .map_err(Fault::from)?;
        rows.iter().map(|row| Ok(column(row, "run").map_err(Fault::from)?.into())).collect()
    }
}
