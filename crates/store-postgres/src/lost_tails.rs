//! Runs whose records have lost their tails, because the server was restored from an earlier state.

use async_trait::async_trait;
use backstop_event_log::{Incarnation, KnownEnd, KnownEnds, LogError, LostRun};
use layer0::Timestamp;
use layer0::event::LostTail;
use layer0::id::RunId;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use crate::fault::Fault;
use crate::pool::ConnectionPool;
use crate::rows::{decode_hash, decode_run_id, decode_summary, to_i64, to_u64};
use crate::text::encode_text;
use crate::transact::TransactionWork;

/// Returns the newest event that a run is known to have lost, and marks the run; `None` if no acknowledged event is
/// missing, as far as this process and the database know.
///
/// A missing record counts as lost only if the run is started or enqueued: a run to be continued may have been removed.
/// A known end of a removed incarnation is forgotten. The row of the run is locked.
pub(crate) async fn check(
    connection: &mut PgConnection,
    run: &RunId,
    ends: &KnownEnds,
    begins: bool,
) -> Result<Option<LostTail>, LogError> {
    let (mark, known) = (find_mark(connection, run).await?, ends.find(run));
    if mark.is_none() && known.is_none() {
        return Ok(None);
    }
    let row = sqlx::query("SELECT * FROM backstop.runs WHERE run = $1 FOR NO KEY UPDATE")
        .bind(&*encode_text(run.as_str()))
        .fetch_optional(&mut *connection)
        .await
        .map_err(Fault::from)?;
    if row.is_none() && !begins && !is_queued(connection, run).await? {
        return Ok(mark);
    }
    let mark = match mark {
        Some(mark) if has(connection, row.as_ref(), &mark).await? => {
            unmark(connection, run).await?;
            None
        }
        mark => mark,
    };
    let Some(known) = known else { return Ok(mark) };
    let is_there = has(connection, row.as_ref(), &known.tail).await?;
    let accepted = row.as_ref().and_then(|row| decode_summary(row).ok()?.accepted_loss);
    if !known.is_lost(is_there, accepted.as_deref()) {
        return Ok(mark);
    }
    if is_removed(connection, &known).await? {
        ends.forget(run);
        return Ok(mark);
    }
    let newest = mark.filter(|mark| mark.seq > known.tail.seq).unwrap_or(known.tail);
    put_mark(connection, run, newest).await?;
    Ok(Some(newest))
}

/// Returns whether the run with this end was removed.
async fn is_removed(connection: &mut PgConnection, known: &KnownEnd) -> Result<bool, LogError> {
    let Some(Incarnation(incarnation)) = known.incarnation() else { return Ok(false) };
    let removed = sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM backstop.removed_incarnations WHERE incarnation = $1)",
    );
    let removed = removed.bind(&incarnation[..]).fetch_one(connection).await;
    Ok(removed.map_err(Fault::from)?)
}

/// Remembers the end of a run according to its row. If the run was removed and started again since, the end of the
/// earlier run is forgotten.
pub(crate) async fn note(
    pool: &ConnectionPool,
    ends: &KnownEnds,
    run: &RunId,
    end: KnownEnd,
) -> Result<(), LogError> {
    if let Some(known) = ends.find(run).filter(|known| known.is_other(end.incarnation()))
        && is_removed(&mut *pool.lend().await?, &known).await?
    {
        ends.forget(run);
    }
    ends.note(run, end);
    Ok(())
}

/// Returns whether a record has an event. A missing row within the record is not a lost tail: its reader detects the
/// damage.
async fn has(
    connection: &mut PgConnection,
    row: Option<&PgRow>,
    tail: &LostTail,
) -> Result<bool, LogError> {
    let Some(row) = row else { return Ok(false) };
    if to_u64(row.try_get("last_seq").map_err(Fault::from)?) < tail.seq {
        return Ok(false);
    }
    let found: Option<Vec<u8>> =
        sqlx::query_scalar("SELECT hash FROM backstop.events WHERE run_id = $1 AND seq = $2")
            .bind(row.try_get::<i64, _>("id").map_err(Fault::from)?)
            .bind(to_i64(tail.seq))
            .fetch_optional(connection)
            .await
            .map_err(Fault::from)?;
    Ok(found.is_none_or(|hash| hash == tail.hash.0))
}

async fn find_mark(
    connection: &mut PgConnection,
    run: &RunId,
) -> Result<Option<LostTail>, LogError> {
    let row = sqlx::query("SELECT * FROM backstop.lost_tails WHERE run = $1")
        .bind(&*encode_text(run.as_str()))
        .fetch_optional(connection)
        .await
        .map_err(Fault::from)?;
    row.as_ref().map(read_tail).transpose()
}

async fn is_queued(connection: &mut PgConnection, run: &RunId) -> Result<bool, LogError> {
    let queued = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM backstop.queue WHERE run = $1)")
        .bind(&*encode_text(run.as_str()))
        .fetch_one(connection)
        .await;
    Ok(queued.map_err(Fault::from)?)
}

fn read_tail(row: &PgRow) -> Result<LostTail, LogError> {
    let seq = to_u64(row.try_get("seq").map_err(Fault::from)?);
    Ok(LostTail::new(seq, decode_hash(row, "hash", seq)?))
}

/// Marks a run, which refuses every write from then on.
async fn put_mark(
    connection: &mut PgConnection,
    run: &RunId,
    tail: LostTail,
) -> Result<(), LogError> {
    let run = encode_text(run.as_str());
    sqlx::query(
        "INSERT INTO backstop.lost_tails VALUES ($1, $2, $3, \
         (extract(epoch FROM clock_timestamp()) * 1000)::bigint) \
         ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, hash = excluded.hash",
    )
    .bind(&*run)
    .bind(to_i64(tail.seq))
    .bind(&tail.hash.0[..])
    .execute(&mut *connection)
    .await
    .map_err(Fault::from)?;
    sqlx::query("UPDATE backstop.runs SET epoch = epoch + 1, owner = NULL WHERE run = $1")
        .bind(&*run)
        .execute(connection)
        .await
        .map_err(Fault::from)?;
    Ok(())
}

/// Removes the mark of a run, if any.
pub(crate) async fn unmark(connection: &mut PgConnection, run: &RunId) -> Result<(), LogError> {
    sqlx::query("DELETE FROM backstop.lost_tails WHERE run = $1")
        .bind(&*encode_text(run.as_str()))
        .execute(connection)
        .await
        .map_err(Fault::from)?;
    Ok(())
}

/// Lists the marked runs.
pub(crate) async fn all(pool: &ConnectionPool) -> Result<Vec<LostRun>, LogError> {
    let rows = sqlx::query("SELECT * FROM backstop.lost_tails ORDER BY run")
        .fetch_all(&mut *pool.lend().await?)
        .await
        .map_err(Fault::from)?;
    let read = |row: &PgRow| {
        let since = Timestamp::from_millis(row.try_get("at").map_err(Fault::from)?);
        Ok(LostRun::new(decode_run_id(row)?, read_tail(row)?, since))
    };
    rows.iter().map(read).collect()
}

/// Compares the record of a run with the end that this process knows, after a refused append.
pub(crate) struct TailComparison<'a> {
    pub(crate) run: &'a RunId,
    pub(crate) ends: &'a KnownEnds,
    /// Whether the run is about to start.
    pub(crate) begins: bool,
}

#[async_trait]
impl TransactionWork for TailComparison<'_> {
    type Done = Option<LostTail>;
    type Error = LogError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<Self::Done, LogError> {
        check(connection, self.run, self.ends, self.begins).await
    }
}

/// Checks whether a run that this process knows, and that is about to start, has lost its whole record. A run that was
/// removed or forgotten has not.
pub(crate) struct BegunComparison<'a>(pub(crate) TailComparison<'a>);

#[async_trait]
impl TransactionWork for BegunComparison<'_> {
    type Done = Option<LostTail>;
    type Error = LogError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<Self::Done, LogError> {
        let is_explained: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM backstop.runs WHERE run = $1) \
             OR EXISTS (SELECT 1 FROM backstop.removed WHERE run = $1) \
             OR EXISTS (SELECT 1 FROM backstop.tombstones WHERE run = $1)",
        )
        .bind(&*encode_text(self.0.run.as_str()))
        .fetch_one(&mut *connection)
        .await
        .map_err(Fault::from)?;
        match is_explained {
            true => Ok(None),
            false => self.0.perform(connection).await,
        }
    }
}
