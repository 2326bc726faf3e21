//! Runs whose records have lost their tails, because the file was restored from an earlier state.

use async_trait::async_trait;
use backstop_event_log::{AcceptedLoss, Incarnation, KnownEnd, KnownEnds, LogError, LostRun};
use layer0::Timestamp;
use layer0::event::LostTail;
use layer0::id::RunId;
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{Row, SqliteConnection, SqliteExecutor};

use crate::chore::Chore;
use crate::fault::Fault;
use crate::job_error::JobError;
use crate::rows::{chain, decode_hash, to_i64, to_u64};

/// The row of a run, with the last accepted loss of its record.
const RUN: &str = "SELECT last_seq, \
    CASE WHEN json_valid(summary) THEN json_extract(summary, '$.accepted_loss') END AS accepted \
    FROM runs WHERE run = $1";

/// Returns the newest event that a run is known to have lost, and marks the run; `None` if no acknowledged event is
/// missing, as far as this process and the database know.
///
/// A missing record counts as lost only for a start: a run to be continued may have been removed. A known end of a
/// removed incarnation is forgotten.
pub(crate) async fn check(
    connection: &mut SqliteConnection,
    run: &RunId,
    ends: &KnownEnds,
    begins: bool,
) -> Result<Option<LostTail>, JobError> {
    let (mark, known) = (find_mark(connection, run).await?, ends.find(run));
    if mark.is_none() && known.is_none() {
        return Ok(None);
    }
    let row = sqlx::query(RUN).bind(run.as_str()).fetch_optional(&mut *connection).await?;
    if row.is_none() && !begins {
        return Ok(mark);
    }
    let mark = match mark {
        Some(mark) if has(connection, run, row.as_ref(), &mark).await? => {
            unmark(connection, run).await?;
            None
        }
        mark => mark,
    };
    let Some(known) = known else { return Ok(mark) };
    let is_there = has(connection, run, row.as_ref(), &known.tail).await?;
    let accepted = row.as_ref().and_then(accepted_in);
    if !known.is_lost(is_there, accepted.as_ref()) {
        return Ok(mark);
    }
    if is_removed(&mut *connection, &known).await? {
        ends.forget(run);
        return Ok(mark);
    }
    let newest = mark.filter(|mark| mark.seq > known.tail.seq).unwrap_or(known.tail);
    put_mark(connection, run, newest).await?;
    Ok(Some(newest))
}

/// Returns whether the run with this end was removed.
async fn is_removed(
    executor: impl SqliteExecutor<'_>,
    known: &KnownEnd,
) -> Result<bool, sqlx::Error> {
    let Some(Incarnation(incarnation)) = known.incarnation() else { return Ok(false) };
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM removed_incarnations WHERE incarnation = $1)")
        .bind(incarnation.to_vec())
        .fetch_one(executor)
        .await
}

/// Remembers the end of a run according to its row. If the run was removed and started again since, the end of the
/// earlier run is forgotten.
pub(crate) async fn note(
    readers: &SqlitePool,
    ends: &KnownEnds,
    run: &RunId,
    end: KnownEnd,
) -> Result<(), LogError> {
    if let Some(known) = ends.find(run).filter(|known| known.is_other(end.incarnation()))
        && is_removed(readers, &known).await.map_err(Fault::from)?
    {
        ends.forget(run);
    }
    ends.note(run, end);
    Ok(())
}

fn accepted_in(row: &SqliteRow) -> Option<AcceptedLoss> {
    let text: Option<String> = row.try_get("accepted").ok()?;
    serde_json::from_str(&text?).ok()
}

/// Returns whether a record has an event. A missing row within the record is not a lost tail: its reader detects the
/// damage.
async fn has(
    connection: &mut SqliteConnection,
    run: &RunId,
    row: Option<&SqliteRow>,
    tail: &LostTail,
) -> Result<bool, JobError> {
    let Some(row) = row else { return Ok(false) };
    if to_u64(row.try_get("last_seq")?) < tail.seq {
        return Ok(false);
    }
    let found: Option<Vec<u8>> =
        sqlx::query_scalar(chain!("SELECT hash FROM chain WHERE seq = $2"))
            .bind(run.as_str())
            .bind(to_i64(tail.seq))
            .fetch_optional(connection)
            .await?;
    Ok(found.is_none_or(|hash| hash == tail.hash.0))
}

async fn find_mark(
    connection: &mut SqliteConnection,
    run: &RunId,
) -> Result<Option<LostTail>, JobError> {
    let row = sqlx::query("SELECT * FROM lost_tails WHERE run = $1")
        .bind(run.as_str())
        .fetch_optional(connection)
        .await?;
    Ok(row.as_ref().map(read_tail).transpose()?)
}

fn read_tail(row: &SqliteRow) -> Result<LostTail, LogError> {
    let seq = to_u64(row.try_get("seq").map_err(Fault::from)?);
    Ok(LostTail::new(seq, decode_hash(row, "hash", seq)?))
}

/// Marks a run, which refuses every write from then on.
async fn put_mark(
    connection: &mut SqliteConnection,
    run: &RunId,
    tail: LostTail,
) -> Result<(), JobError> {
    sqlx::query(
        "INSERT INTO lost_tails VALUES ($1, $2, $3, unixepoch() * 1000) \
         ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, hash = excluded.hash",
    )
    .bind(run.as_str())
    .bind(to_i64(tail.seq))
    .bind(&tail.hash.0[..])
    .execute(&mut *connection)
    .await?;
    sqlx::query("UPDATE runs SET epoch = epoch + 1, owner = NULL WHERE run = $1")
        .bind(run.as_str())
        .execute(connection)
        .await?;
    Ok(())
}

/// Removes the mark of a run, if any.
pub(crate) async fn unmark(connection: &mut SqliteConnection, run: &RunId) -> Result<(), JobError> {
    sqlx::query("DELETE FROM lost_tails WHERE run = $1")
        .bind(run.as_str())
        .execute(connection)
        .await?;
    Ok(())
}

/// Lists the marked runs; a file of an older version has none.
pub(crate) async fn all(readers: &SqlitePool) -> Result<Vec<LostRun>, LogError> {
    let table = "SELECT count(*) FROM sqlite_master WHERE name = 'lost_tails'";
    let tables: i64 = sqlx::query_scalar(table).fetch_one(readers).await.map_err(Fault::from)?;
    if tables == 0 {
        return Ok(Vec::new());
    }
    let rows = sqlx::query("SELECT * FROM lost_tails ORDER BY run").fetch_all(readers).await;
    let read = |row: &SqliteRow| {
        let run: String = row.try_get("run").map_err(Fault::from)?;
        let since = Timestamp::from_millis(row.try_get("at").map_err(Fault::from)?);
        Ok(LostRun::new(run.into(), read_tail(row)?, since))
    };
    rows.map_err(Fault::from)?.iter().map(read).collect()
}

/// Compares the record of a run with the end that this process knows, after a refused append. Returns the seq of the
/// newest lost event; 0 if there is none.
pub(crate) struct CompareTail {
    pub(crate) run: RunId,
    pub(crate) ends: KnownEnds,
    /// Whether the run is about to start.
    pub(crate) begins: bool,
}

#[async_trait]
impl Chore for CompareTail {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let lost = check(connection, &self.run, &self.ends, self.begins).await?;
        Ok(lost.map_or(0, |tail| tail.seq))
    }
}

/// Checks whether a run that this process knows, and that is about to start, has lost its whole record. A run that was
/// removed or forgotten has not.
pub(crate) struct CompareBegun(pub(crate) CompareTail);

#[async_trait]
impl Chore for CompareBegun {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let is_explained: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM runs WHERE run = $1) \
             OR EXISTS (SELECT 1 FROM removed WHERE run = $1) \
             OR EXISTS (SELECT 1 FROM tombstones WHERE run = $1)",
        )
        .bind(self.0.run.as_str())
        .fetch_one(&mut *connection)
        .await?;
        match is_explained {
            true => Ok(0),
            false => self.0.perform(connection).await,
        }
    }
}
