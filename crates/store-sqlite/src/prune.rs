//! Pruning of expired errors and results.
//!
//! Readers choose the rows, from columns before the texts; the writer removes them in small batches, and checks each
//! row again.

use std::collections::HashMap;

use async_trait::async_trait;
use backstop_error_store::{Pruned, Retention, StoreError};
use backstop_retention::Life;
use layer0::Timestamp;
use layer0::id::SessionId;
use sqlx::{Row, SqliteConnection};

use crate::chore::Chore;
use crate::database::Database;
use crate::expired::expire;
use crate::fault::Fault;
use crate::job_error::JobError;
use crate::life::life;
use crate::rows::to_u64;

/// Maximum number of rows, and of bytes of text, that one transaction removes.
const BATCH_ROWS: usize = 64;
const BATCH_BYTES: i64 = 1024 * 1024;

/// Errors or results.
#[derive(Debug)]
pub(crate) struct PruneStatements {
    totals: &'static str,
    /// Reads the rows after `$1` and `$2`, the longest unseen first.
    oldest: &'static str,
    /// Removes row `$1` if it was last seen at `$2` and no open run needs it.
    take: &'static str,
    of_session: &'static str,
    of_run: &'static str,
    drop: &'static str,
}

/// Restricts a removal of row `$1` to rows without an open run: in the row's session, in a session copied from it, or
/// with a reference to the row.
macro_rules! unless_open {
    ($take:literal, $table:literal) => {
        concat!(
            $take,
            " AND NOT EXISTS (WITH RECURSIVE family (session) AS (SELECT ",
            $table,
            ".session UNION SELECT lineage.session FROM lineage JOIN family \
             ON lineage.ancestor = family.session) SELECT 1 FROM family JOIN runs \
             ON runs.session = family.session \
             WHERE runs.state IN ('running', 'waiting_approval', 'parked')) \
             AND NOT EXISTS (SELECT 1 FROM refers JOIN runs ON runs.run = refers.run \
             WHERE refers.id = ",
            $table,
            ".id AND state NOT IN ('finished', 'failed')) RETURNING id, session, bytes"
        )
    };
}

/// Condition that only the removed run `$1` refers to a row. A run that exists again under the same id keeps the rows
/// it refers to.
macro_rules! alone {
    ($table:literal, $run:literal) => {
        concat!(
            "NOT EXISTS (SELECT 1 FROM refers AS other WHERE other.id = ",
            $table,
            ".id AND other.run <> ",
            $run,
            ") AND NOT EXISTS (SELECT 1 FROM runs WHERE run = ",
            $run,
            ")"
        )
    };
}

/// The rows that only the run `$1` refers to.
macro_rules! of_run {
    ($table:literal) => {
        concat!(
            "SELECT id FROM ",
            $table,
            " WHERE id IN (SELECT id FROM refers WHERE run = $1) AND ",
            alone!($table, "$1"),
            " LIMIT 64"
        )
    };
}

/// Removes row `$1`; if `$2` names a run, only while no other run refers to the row.
macro_rules! drop {
    ($table:literal) => {
        concat!(
            "DELETE FROM ",
            $table,
            " WHERE id = $1 AND ($2 IS NULL OR ",
            alone!($table, "$2"),
            ") RETURNING session, bytes"
        )
    };
}

impl PruneStatements {
    pub(crate) const ERRORS: Self = Self {
        totals: "SELECT coalesce(sum(errors), 0) AS many, coalesce(sum(bytes), 0) AS bytes \
                 FROM error_stats",
        oldest: "SELECT number, id, session, last_at AS seen, bytes FROM errors \
                 WHERE (last_at, number) > ($1, $2) ORDER BY last_at, number LIMIT 256",
        take: unless_open!("DELETE FROM errors WHERE number = $1 AND last_at = $2", "errors"),
        of_session: "SELECT id FROM errors WHERE session = $1 LIMIT 64",
        of_run: of_run!("errors"),
        drop: drop!("errors"),
    };
    pub(crate) const RESULTS: Self = Self {
        totals: "SELECT count(*) AS many, coalesce(sum(bytes), 0) AS bytes FROM results",
        oldest: "SELECT number, id, session, at AS seen, bytes FROM results \
                 WHERE (at, number) > ($1, $2) ORDER BY at, number LIMIT 256",
        take: unless_open!("DELETE FROM results WHERE number = $1 AND at = $2", "results"),
        of_session: "SELECT id FROM results WHERE session = $1 LIMIT 64",
        of_run: of_run!("results"),
        drop: drop!("results"),
    };
    pub(crate) const ALL: [&Self; 2] = [&Self::ERRORS, &Self::RESULTS];
}

/// A row that may be removed.
struct Candidate {
    number: i64,
    id: String,
    session: SessionId,
    seen: i64,
    bytes: i64,
}

/// Removes rows that exceed the retention now.
pub(crate) async fn prune(
    database: &Database,
    kind: &'static PruneStatements,
    retention: Retention,
    now: Timestamp,
) -> Result<Pruned, StoreError> {
    let writer = database.for_writing()?;
    let totals = sqlx::query(kind.totals).fetch_one(database.readers()).await;
    let totals = totals.map_err(Fault::from)?;
    let total = |column: &str| totals.try_get::<i64, _>(column).map_err(Fault::from);
    let (mut rows, mut bytes) = (total("many")?, total("bytes")?);
    let oldest = retention.oldest(now);
    let (mut pruned, mut taken) = (Pruned::default(), Vec::new());
    let mut behind = (i64::MIN, i64::MIN);
    'all: loop {
        let candidates = candidates(database, kind, behind).await?;
        let Some(last) = candidates.last() else { break };
        behind = (last.seen, last.number);
        // Kept only for one page: runs start and end during a pass.
        let mut lives: HashMap<SessionId, Life> = HashMap::new();
        for candidate in candidates {
            let is_too_much = retention.is_exceeded(to_u64(rows), to_u64(bytes));
            let seen = Timestamp::from_millis(candidate.seen);
            if !is_too_much && oldest.is_none_or(|oldest| seen >= oldest) {
                break 'all;
            }
            let of = match lives.get(&candidate.session) {
                Some(life) => *life,
                None => {
                    let life = life(database.readers(), &candidate.session).await?;
                    lives.insert(candidate.session.clone(), life);
                    life
                }
            };
            if of.is_open
                || database.upkeep().holds().is_held(&candidate.session)
                // The age counts from the end of its session.
                || !is_too_much && of.ended_at.zip(oldest).is_some_and(|(end, oldest)| end >= oldest)
                || refers(database, &candidate.id).await?
            {
                continue;
            }
            rows -= 1;
            bytes -= candidate.bytes;
            taken.push(candidate);
            let size: i64 = taken.iter().map(|taken| taken.bytes).sum();
            if taken.len() >= BATCH_ROWS || size >= BATCH_BYTES {
                pruned = take(writer, kind, std::mem::take(&mut taken), pruned).await?;
            }
        }
    }
    take(writer, kind, taken, pruned).await
}

async fn candidates(
    database: &Database,
    kind: &PruneStatements,
    (seen, number): (i64, i64),
) -> Result<Vec<Candidate>, StoreError> {
    let rows = sqlx::query(kind.oldest)
        .bind(seen)
        .bind(number)
        .fetch_all(database.readers())
        .await
        .map_err(Fault::from)?;
    let read = |row: &sqlx::sqlite::SqliteRow| {
        Ok(Candidate {
            number: row.try_get("number")?,
            id: row.try_get("id")?,
            session: row.try_get::<String, _>("session")?.into(),
            seen: row.try_get("seen")?,
            bytes: row.try_get("bytes")?,
        })
    };
    let rows: Result<_, sqlx::Error> = rows.iter().map(read).collect();
    Ok(rows.map_err(Fault::from)?)
}

/// Returns whether an open run refers to the row.
async fn refers(database: &Database, id: &str) -> Result<bool, StoreError> {
    let open: Option<i64> = sqlx::query_scalar(
        "SELECT 1 FROM refers JOIN runs ON runs.run = refers.run \
         WHERE refers.id = $1 AND state NOT IN ('finished', 'failed') LIMIT 1",
    )
    .bind(id)
    .fetch_optional(database.readers())
    .await
    .map_err(Fault::from)?;
    Ok(open.is_some())
}

async fn take(
    writer: &crate::writer::Writer,
    kind: &'static PruneStatements,
    rows: Vec<Candidate>,
    before: Pruned,
) -> Result<Pruned, StoreError> {
    if rows.is_empty() {
        return Ok(before);
    }
    let taken = std::sync::Arc::new(Take { kind, rows, bytes: 0.into() });
    let many = writer.perform_shared(taken.clone()).await?;
    let bytes = taken.bytes.load(std::sync::atomic::Ordering::Relaxed);
    Ok(Pruned::new(before.rows + many, before.bytes + bytes))
}

/// Removes rows that are unchanged since they were chosen.
struct Take {
    kind: &'static PruneStatements,
    rows: Vec<Candidate>,
    bytes: std::sync::atomic::AtomicU64,
}

#[async_trait]
impl Chore for Take {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let (mut many, mut bytes) = (0, 0);
        for row in &self.rows {
            let taken = sqlx::query(self.kind.take)
                .bind(row.number)
                .bind(row.seen)
                .fetch_optional(&mut *connection)
                .await?;
            let Some(taken) = taken else { continue };
            let id: String = taken.try_get("id")?;
            expire(connection, &id, &taken.try_get::<String, _>("session")?).await?;
            many += 1;
            bytes += to_u64(taken.try_get("bytes")?);
        }
        self.bytes.store(bytes, std::sync::atomic::Ordering::Relaxed);
        Ok(many)
    }
}

/// The owner of the texts to remove, whatever their age.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Whose<'a> {
    /// The texts that no other run refers to.
    Run(&'a str),
    Session(&'a str),
}

/// Removes all texts of a run or session. With `is_noted`, their ids answer "expired".
pub(crate) async fn take_all(
    database: &Database,
    kind: &'static PruneStatements,
    whose: Whose<'_>,
    is_noted: bool,
) -> Result<u64, StoreError> {
    let (select, of, run) = match whose {
        Whose::Run(run) => (kind.of_run, run, Some(run.to_owned())),
        Whose::Session(session) => (kind.of_session, session, None),
    };
    let mut many = 0;
    loop {
        let ids: Vec<String> = sqlx::query_scalar(select)
            .bind(of)
            .fetch_all(database.readers())
            .await
            .map_err(Fault::from)?;
        if ids.is_empty() {
            return Ok(many);
        }
        let run = run.clone();
        many += database.for_writing()?.perform(TakeAll { kind, run, ids, is_noted }).await?;
    }
}

struct TakeAll {
    kind: &'static PruneStatements,
    /// The only run that refers to them, if they are removed with a run.
    run: Option<String>,
    ids: Vec<String>,
    is_noted: bool,
}

#[async_trait]
impl Chore for TakeAll {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let mut many = 0;
        for id in &self.ids {
            let dropped = sqlx::query(self.kind.drop).bind(id).bind(&self.run);
            let dropped = dropped.fetch_optional(&mut *connection).await?;
            let Some(dropped) = dropped else { continue };
            if self.is_noted {
                expire(connection, id, &dropped.try_get::<String, _>("session")?).await?;
            }
            many += 1;
        }
        Ok(many)
    }
}
