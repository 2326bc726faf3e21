//! Pruning of expired errors and results.
//!
//! Rows are chosen from columns before the texts, and removed in small batches; the statement that removes a row checks
//! it again.

use std::collections::HashMap;

use async_trait::async_trait;
use backstop_error_store::{Pruned, Retention, StoreError};
use backstop_retention::Life;
use layer0::Timestamp;
use layer0::id::SessionId;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use crate::database::Database;
use crate::fault::Fault;
use crate::pool::ConnectionPool;
use crate::rows::to_u64;
use crate::server_time;
use crate::text::{column, encode_text};
use crate::transact::{TransactionWork, transact};

/// Maximum number of rows, and of bytes of text, that one transaction removes.
const BATCH_ROWS: usize = 64;
const BATCH_BYTES: i64 = 1024 * 1024;

/// Errors or results.
#[derive(Debug)]
pub(crate) struct PruneStatements {
    totals: &'static str,
    /// Reads the rows after `$1` and `$2`, the longest unseen first.
    oldest: &'static str,
    /// Removes the rows `$1` that were not seen since `$2` and that no open run needs.
    take: &'static str,
    of_session: Taking,
    of_run: Taking,
}

/// Restricts a removal to rows without an open run: in the row's session, in a session copied from it, or with a
/// reference to the row.
macro_rules! take {
    ($table:literal, $seen:literal) => {
        concat!(
            "WITH taken AS (DELETE FROM ",
            $table,
            " AS old USING unnest($1::bigint[], $2::bigint[]) AS chosen (number, seen) \
             WHERE old.number = chosen.number AND old.",
            $seen,
            " = chosen.seen AND NOT EXISTS (WITH RECURSIVE family (session) AS (SELECT old.session \
             UNION SELECT lineage.session FROM backstop.lineage AS lineage JOIN family \
             ON lineage.ancestor = family.session) SELECT 1 FROM family \
             JOIN backstop.runs AS runs ON runs.session = family.session \
             WHERE runs.state IN ('running', 'waiting_approval', 'parked')) \
             AND NOT EXISTS (SELECT 1 FROM backstop.refers AS refers JOIN backstop.runs AS runs \
             ON runs.run = refers.run WHERE refers.id = old.id AND state NOT IN ('finished', 'failed')) \
             RETURNING id, session, bytes), \
             noted AS (INSERT INTO backstop.expired (id, session) SELECT id, session FROM taken ON CONFLICT DO NOTHING) \
             SELECT count(*) AS many, coalesce(sum(bytes), 0)::bigint AS bytes FROM taken"
        )
    };
}

/// Counts the rows after number `$1`, at most `$2` of them: their number, their bytes, and the last number.
macro_rules! totals {
    ($table:literal) => {
        concat!(
            "SELECT count(*), coalesce(sum(bytes), 0)::bigint, max(number) FROM \
             (SELECT number, bytes FROM ",
            $table,
            " WHERE number > $1 ORDER BY number LIMIT $2) AS page"
        )
    };
}

/// Maximum number of rows that one statement counts.
const COUNTED: i64 = 8192;

/// Maximum number of rows that one statement removes, so that it ends within its time limit.
const PAGE: i64 = 256;

/// Finds and locks rows of a table that match a condition. A transaction that stores one of them for another run is
/// awaited, and visible to the next statement.
macro_rules! lock {
    ($table:literal, $which:expr) => {
        concat!(
            "SELECT id FROM ",
            $table,
            " AS old WHERE ",
            $which,
            " ORDER BY id LIMIT $2 FOR UPDATE"
        )
    };
}

/// Removes the rows `$2` of a table that still match a condition; `$3` is whether their ids are recorded.
macro_rules! take_all {
    ($table:literal, $which:expr) => {
        concat!(
            "WITH taken AS (DELETE FROM ",
            $table,
            " AS old WHERE id = ANY($2) AND ",
            $which,
            " RETURNING id, session), noted AS (INSERT INTO backstop.expired (id, session) SELECT id, session FROM taken \
             WHERE $3 ON CONFLICT DO NOTHING) SELECT count(*) FROM taken"
        )
    };
}

/// Condition that only the removed run `$1` refers to a row. A run that exists again under the same id keeps the rows
/// it refers to.
macro_rules! alone {
    () => {
        "id IN (SELECT id FROM backstop.refers WHERE run = $1) AND NOT EXISTS \
         (SELECT 1 FROM backstop.refers AS other WHERE other.id = old.id AND other.run <> $1) \
         AND NOT EXISTS (SELECT 1 FROM backstop.runs WHERE run = $1)"
    };
}

/// The rows of the session `$1`.
macro_rules! of_session {
    () => {
        "session = $1"
    };
}

impl PruneStatements {
    pub(crate) const ERRORS: Self = Self {
        totals: totals!("backstop.errors"),
        oldest: "SELECT number, id, session, last_at AS seen, bytes FROM backstop.errors \
                 WHERE (last_at, number) > ($1, $2) ORDER BY last_at, number LIMIT 256",
        take: take!("backstop.errors", "last_at"),
        of_session: Taking {
            lock: lock!("backstop.errors", of_session!()),
            take: take_all!("backstop.errors", of_session!()),
        },
        of_run: Taking {
            lock: lock!("backstop.errors", alone!()),
            take: take_all!("backstop.errors", alone!()),
        },
    };
    pub(crate) const RESULTS: Self = Self {
        totals: totals!("backstop.results"),
        oldest: "SELECT number, id, session, at AS seen, bytes FROM backstop.results \
                 WHERE (at, number) > ($1, $2) ORDER BY at, number LIMIT 256",
        take: take!("backstop.results", "at"),
        of_session: Taking {
            lock: lock!("backstop.results", of_session!()),
            take: take_all!("backstop.results", of_session!()),
        },
        of_run: Taking {
            lock: lock!("backstop.results", alone!()),
            take: take_all!("backstop.results", alone!()),
        },
    };
    pub(crate) const ALL: [&Self; 2] = [&Self::ERRORS, &Self::RESULTS];
}

/// Statements that find rows to remove whatever their age, and remove them.
#[derive(Debug)]
struct Taking {
    lock: &'static str,
    take: &'static str,
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
    let pool = database.for_writing()?;
    let (mut rows, mut bytes) = totals(pool, kind).await?;
    let now = server_time::cap_at_server_time(&mut *pool.lend().await?, now)
        .await
        .map_err(Fault::from)?;
    let oldest = retention.oldest(now);
    let (mut pruned, mut taken) = (Pruned::default(), Vec::new());
    let mut behind = (i64::MIN, i64::MIN);
    'all: loop {
        let candidates = candidates(pool, kind, behind).await?;
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
                    let life = life(pool, &candidate.session).await?;
                    lives.insert(candidate.session.clone(), life);
                    life
                }
            };
            if of.is_open
                || database.upkeep().holds().is_held(&candidate.session)
                // The age counts from the end of its session.
                || !is_too_much && of.ended_at.zip(oldest).is_some_and(|(end, oldest)| end >= oldest)
                || refers(pool, &candidate.id).await?
            {
                continue;
            }
            rows -= 1;
            bytes -= candidate.bytes;
            taken.push(candidate);
            let size: i64 = taken.iter().map(|taken| taken.bytes).sum();
            if taken.len() >= BATCH_ROWS || size >= BATCH_BYTES {
                pruned = take(pool, kind, std::mem::take(&mut taken), pruned).await?;
            }
        }
    }
    take(pool, kind, taken, pruned).await
}

/// Returns the activity of a session and of its copies.
async fn life(pool: &ConnectionPool, session: &SessionId) -> Result<Life, StoreError> {
    let row = sqlx::query(
        "WITH RECURSIVE family (session) AS (SELECT $1::text COLLATE \"C\" UNION SELECT lineage.session \
         FROM backstop.lineage AS lineage JOIN family ON lineage.ancestor = family.session) \
         SELECT coalesce(bool_or(state NOT IN ('finished', 'failed')), false) AS is_open, \
         max(greatest(ended_at, started_at)) AS ended FROM backstop.runs AS runs \
         JOIN family ON runs.session = family.session",
    )
    .bind(&*encode_text(session.as_str()))
    .fetch_one(&mut *pool.lend().await?)
    .await
    .map_err(Fault::from)?;
    let ended: Option<i64> = row.try_get("ended").map_err(Fault::from)?;
    let is_open = row.try_get("is_open").map_err(Fault::from)?;
    Ok(Life { is_open, ended_at: ended.map(Timestamp::from_millis) })
}

/// Returns the number of rows and of their bytes. Each statement reads some rows, so that it ends within its time
/// limit.
async fn totals(pool: &ConnectionPool, kind: &PruneStatements) -> Result<(i64, i64), StoreError> {
    let (mut rows, mut bytes, mut last) = (0, 0, i64::MIN);
    loop {
        let (counted, size, newest): (i64, i64, Option<i64>) = sqlx::query_as(kind.totals)
            .bind(last)
            .bind(COUNTED)
            .fetch_one(&mut *pool.lend().await?)
            .await
            .map_err(Fault::from)?;
        let Some(newest) = newest else { return Ok((rows, bytes)) };
        (rows, bytes, last) = (rows + counted, bytes + size, newest);
    }
}

async fn candidates(
    pool: &ConnectionPool,
    kind: &PruneStatements,
    (seen, number): (i64, i64),
) -> Result<Vec<Candidate>, StoreError> {
    let rows =
        sqlx::query(kind.oldest).bind(seen).bind(number).fetch_all(&mut *pool.lend().await?).await;
    let read = |row: &PgRow| {
        Ok(Candidate {
            number: row.try_get("number")?,
            id: row.try_get("id")?,
            session: column(row, "session")?.into(),
            seen: row.try_get("seen")?,
            bytes: row.try_get("bytes")?,
        })
    };
    let rows: Result<_, sqlx::Error> = rows.map_err(Fault::from)?.iter().map(read).collect();
    Ok(rows.map_err(Fault::from)?)
}

/// Returns whether an open run refers to the row.
async fn refers(pool: &ConnectionPool, id: &str) -> Result<bool, StoreError> {
    let open = sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM backstop.refers AS refers JOIN backstop.runs AS runs \
         ON runs.run = refers.run WHERE refers.id = $1 AND state NOT IN ('finished', 'failed'))",
    );
    Ok(open.bind(id).fetch_one(&mut *pool.lend().await?).await.map_err(Fault::from)?)
}

async fn take(
    pool: &ConnectionPool,
    kind: &'static PruneStatements,
    rows: Vec<Candidate>,
    before: Pruned,
) -> Result<Pruned, StoreError> {
    if rows.is_empty() {
        return Ok(before);
    }
    let (numbers, seen): (Vec<i64>, Vec<i64>) =
        rows.iter().map(|row| (row.number, row.seen)).unzip();
    let mut lent = pool.lend().await?;
    let (many, bytes): (i64, i64) = sqlx::query_as(kind.take)
        .bind(numbers)
        .bind(seen)
        .fetch_one(&mut *lent)
        .await
        .map_err(Fault::from)?;
    lent.end().await?;
    Ok(Pruned::new(before.rows + to_u64(many), before.bytes + to_u64(bytes)))
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
    let (pool, patience) = (database.for_writing()?, database.options().patience);
    let mut taken = 0;
    loop {
        match transact(pool, patience, &TakeSome { kind, whose, is_noted }).await? {
            Some(some) => taken += some,
            None => return Ok(taken),
        }
    }
}

/// Removes some rows, and returns their number; `None` if none are left.
struct TakeSome<'a> {
    kind: &'static PruneStatements,
    whose: Whose<'a>,
    is_noted: bool,
}

#[async_trait]
impl TransactionWork for TakeSome<'_> {
    type Done = Option<u64>;
    type Error = StoreError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<Option<u64>, StoreError> {
        let (taking, of) = match self.whose {
            Whose::Run(run) => (&self.kind.of_run, encode_text(run)),
            Whose::Session(session) => (&self.kind.of_session, encode_text(session)),
        };
        let ids: Vec<String> = sqlx::query_scalar(taking.lock)
            .bind(&*of)
            .bind(PAGE)
            .fetch_all(&mut *connection)
            .await
            .map_err(Fault::from)?;
        if ids.is_empty() {
            return Ok(None);
        }
        let many: i64 = sqlx::query_scalar(taking.take)
            .bind(&*of)
            .bind(ids)
            .bind(self.is_noted)
            .fetch_one(connection)
            .await
            .map_err(Fault::from)?;
        Ok(Some(to_u64(many)))
    }
}
