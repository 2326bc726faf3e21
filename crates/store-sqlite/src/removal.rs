//! Removal of runs: by age, by id, or with their session.

use async_trait::async_trait;
use backstop_error_store::StoreError;
use backstop_event_log::LogError;
use backstop_retention::{Removal, Removed, RunRow};
use layer0::failure::Chain;
use layer0::id::SessionId;
use serde_json::json;
use sqlx::SqliteConnection;

use crate::chore::Chore;
use crate::database::Database;
use crate::erasure::{erase_all, failures_about, failures_left};
use crate::fault::Fault;
use crate::job_error::JobError;
use crate::prune::{PruneStatements, Whose, take_all};
use crate::rows::to_u64;
use crate::start_keys;

/// Number of events that one transaction removes.
const BATCH: i64 = 64;

/// Removes a run with its descendants, and the texts that no other run refers to. Returns `false` and removes nothing
/// if one of the runs was written to since its row was read.
pub(crate) async fn remove(
    database: &Database,
    tree: &[&RunRow],
    removal: &Removal,
    removed: &mut Removed,
) -> Result<bool, StoreError> {
    let writer = database.for_writing()?;
    // Read before anything is removed, because the key that seals them may be missing.
    let mut failures = Vec::new();
    for row in tree {
        failures.extend(failures_about(database, row.run.as_str()).await?);
    }
    let rows = tree.iter().map(|row| (*row).clone()).collect();
    if writer.perform(RemoveTree { rows, removal: removal.clone() }).await? == 0 {
        return Ok(false);
    }
    tree.iter().for_each(|row| database.known_ends().forget(&row.run));
    erase_all(database, failures).await?;
    for row in tree {
        let (whose, is_noted) = (Whose::Run(row.run.as_str()), !removal.is_silent);
        removed.errors += take_all(database, &PruneStatements::ERRORS, whose, is_noted).await?;
        removed.results += take_all(database, &PruneStatements::RESULTS, whose, is_noted).await?;
        while writer.perform(SweepEvents(row.id)).await? > 0 {}
        removed.runs.push(row.run.clone());
    }
    Ok(true)
}

/// Completes removals that a process started and did not finish.
pub(crate) async fn sweep(database: &Database) -> Result<(), StoreError> {
    let writer = database.for_writing()?;
    writer.perform(UnmarkOld).await?;
    let left: Vec<(i64, String, bool)> =
        sqlx::query_as("SELECT run_id, run, is_silent FROM removed")
            .fetch_all(database.readers())
            .await
            .map_err(Fault::from)?;
    for (run_id, run, is_silent) in left {
        for kind in PruneStatements::ALL {
            take_all(database, kind, Whose::Run(&run), !is_silent).await?;
        }
        while writer.perform(SweepEvents(run_id)).await? > 0 {}
    }
    match failures_left(database).await {
        Ok(failures) => erase_all(database, failures).await,
        // Nothing else depends on the key.
        Err(error @ LogError::KeyMissing { .. }) => {
            let error = Chain(&error);
            tracing::warn!(%error, "failure messages of behaviours about removed runs are left");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Removes the rows of runs if they are unchanged; their texts and events follow.
struct RemoveTree {
    rows: Vec<RunRow>,
    removal: Removal,
}

#[async_trait]
impl Chore for RemoveTree {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let names: Vec<&str> = self.rows.iter().map(|row| row.run.as_str()).collect();
        let names = json!(names).to_string();
        for row in &self.rows {
            if !self.is_unchanged(connection, row, &names).await? {
                return Ok(0);
            }
        }
        for row in &self.rows {
            self.remove_row(connection, row).await?;
        }
        Ok(1)
    }
}

impl RemoveTree {
    /// Returns whether a run is unchanged since its row was read, and no run outside its tree follows it.
    async fn is_unchanged(
        &self,
        connection: &mut SqliteConnection,
        row: &RunRow,
        names: &str,
    ) -> Result<bool, JobError> {
        let unchanged: Option<i64> = sqlx::query_scalar(
            "SELECT 1 FROM runs WHERE id = $1 AND run = $2 \
             AND last_seq = $3 AND ($5 OR state IN ('finished', 'failed')) AND ($4 OR NOT EXISTS \
             (SELECT 1 FROM follows JOIN runs AS later ON later.run = follows.run \
             WHERE follows.earlier = $2 AND later.run NOT IN (SELECT value FROM json_each($6))))",
        )
        .bind(row.id)
        .bind(row.run.as_str())
        .bind(row.last_seq)
        .bind(self.removal.forgotten.is_some())
        .bind(self.removal.is_segment)
        .bind(names)
        .fetch_optional(connection)
        .await?;
        Ok(unchanged.is_some())
    }

    async fn remove_row(
        &self,
        connection: &mut SqliteConnection,
        row: &RunRow,
    ) -> Result<(), JobError> {
        let run = row.run.as_str();
        sqlx::query(
            "INSERT INTO removed (run_id, run, event, is_silent) \
             SELECT id, run, last_event, $2 FROM runs WHERE id = $1",
        )
        .bind(row.id)
        .bind(self.removal.is_silent)
        .execute(&mut *connection)
        .await?;
        if let Some((by, at)) = &self.removal.forgotten {
            sqlx::query(
                "INSERT INTO tombstones (run, head, at, forgotten_by) \
                 SELECT run, head, $2, $3 FROM runs WHERE id = $1 \
                 ON CONFLICT DO NOTHING",
            )
            .bind(row.id)
            .bind(at.as_millis())
            .bind(by)
            .execute(&mut *connection)
            .await?;
        }
        for statement in [
            "INSERT INTO removed_incarnations (incarnation, at) \
             SELECT incarnation, unixepoch() * 1000 FROM runs WHERE run = $1 AND incarnation IS NOT NULL ON CONFLICT DO NOTHING",
            "DELETE FROM approvals WHERE run = $1",
            "DELETE FROM expired_approvals WHERE run = $1",
            "DELETE FROM inbox WHERE run = $1",
            "DELETE FROM lost_tails WHERE run = $1",
            "DELETE FROM follows WHERE run = $1",
            "DELETE FROM state WHERE scope = 'run:' || $1",
            "DELETE FROM settled WHERE run = $1",
            "DELETE FROM erasures WHERE run_id = (SELECT id FROM runs WHERE run = $1)",
            "DELETE FROM runs WHERE run = $1",
        ] {
            sqlx::query(statement).bind(run).execute(&mut *connection).await?;
        }
        start_keys::keep_removed(connection, run).await?;
        sqlx::query(
            "DELETE FROM lineage WHERE session = $1 \
             AND NOT EXISTS (SELECT 1 FROM runs WHERE session = $1)",
        )
        .bind(row.session.as_str())
        .execute(connection)
        .await?;
        Ok(())
    }
}

/// Marks a session as being forgotten, and returns the number of the mark.
pub(crate) struct Mark(pub(crate) SessionId);

#[async_trait]
impl Chore for Mark {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let mark = sqlx::query("INSERT INTO forgetting (session, at) VALUES ($1, unixepoch())")
            .bind(self.0.as_str())
            .execute(connection)
            .await?;
        Ok(to_u64(mark.last_insert_rowid()))
    }
}

/// Removes marks.
pub(crate) struct Unmark(pub(crate) Vec<i64>);

#[async_trait]
impl Chore for Unmark {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let marks = json!(self.0).to_string();
        let gone =
            sqlx::query("DELETE FROM forgetting WHERE id IN (SELECT value FROM json_each($1))")
                .bind(marks)
                .execute(connection)
                .await?;
        Ok(gone.rows_affected())
    }
}

/// Removes the marks of processes that died.
struct UnmarkOld;

#[async_trait]
impl Chore for UnmarkOld {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let gone = sqlx::query("DELETE FROM forgetting WHERE at < unixepoch() - 3600")
            .execute(connection)
            .await?;
        Ok(gone.rows_affected())
    }
}

/// Removes the last events of a removed run, and returns their number; 0 if none are left.
struct SweepEvents(i64);

#[async_trait]
impl Chore for SweepEvents {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let events: Vec<(i64, Option<i64>)> = sqlx::query_as(
            "WITH RECURSIVE last (id, prev, place) AS (SELECT events.id, prev, 1 FROM removed \
             JOIN events ON events.id = removed.event AND events.run_id = removed.run_id \
             WHERE removed.run_id = $1 UNION ALL SELECT events.id, events.prev, place + 1 FROM last \
             JOIN events ON events.id = last.prev AND events.id < last.id AND events.run_id = $1 \
             WHERE place < $2) SELECT id, prev FROM last ORDER BY id DESC",
        )
        .bind(self.0)
        .bind(BATCH)
        .fetch_all(&mut *connection)
        .await?;
        let Some((_, next)) = events.last() else {
            for statement in [
                "DELETE FROM refers WHERE run = (SELECT run FROM removed WHERE run_id = $1) \
                 AND run NOT IN (SELECT run FROM runs)",
                "DELETE FROM positions WHERE subscription IN (SELECT name FROM subscriptions) \
                 AND run = (SELECT run FROM removed WHERE run_id = $1) \
                 AND run NOT IN (SELECT run FROM runs)",
                "DELETE FROM removed WHERE run_id = $1",
            ] {
                sqlx::query(statement).bind(self.0).execute(&mut *connection).await?;
            }
            return Ok(0);
        };
        let ids: Vec<i64> = events.iter().map(|(id, _)| *id).collect();
        let ids = serde_json::to_string(&ids).map_err(|error| StoreError::Failed(error.into()));
        let ids = ids.map_err(JobError::Store)?;
        // The numbers of events are never reused: the number of the newest event stays.
        for statement in [
            "DELETE FROM delivery_failures WHERE event IN (SELECT value FROM json_each($1))",
            "UPDATE events SET run_id = 0, prev = NULL, data = '{}', hash = x'', salt = NULL, \
             erased = NULL \
             WHERE id = (SELECT max(id) FROM events) AND id IN (SELECT value FROM json_each($1))",
            "DELETE FROM events WHERE id IN (SELECT value FROM json_each($1)) AND run_id <> 0",
        ] {
            sqlx::query(statement).bind(&ids).execute(&mut *connection).await?;
        }
        sqlx::query("UPDATE removed SET event = $2 WHERE run_id = $1")
            .bind(self.0)
            .bind(next)
            .execute(connection)
            .await?;
        Ok(u64::try_from(events.len()).unwrap_or(u64::MAX))
    }
}
