//! The HMACs of rows and erasures.

use std::collections::BTreeMap;

use backstop_event_log::{KeptRow, LogError, LogKey, RowSeal, RunSeals};
use layer0::event::Hash;
use layer0::id::RunId;
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{Row, SqliteConnection};

use crate::fault::Fault;
use crate::job_error::JobError;
use crate::rows::{decode_hash, to_i64, to_u64};

/// Seals the row of a run as it is in the transaction.
pub(crate) async fn seal_row(
    connection: &mut SqliteConnection,
    run: &RunId,
    key: &LogKey,
) -> Result<(), JobError> {
    let row = sqlx::query("SELECT * FROM runs WHERE run = $1").bind(run.as_str());
    let Some(row) = row.fetch_optional(&mut *connection).await? else { return Ok(()) };
    let seal = key.seal_row(&kept_row(&row)?);
    sqlx::query("UPDATE runs SET seal = $2 WHERE run = $1")
        .bind(run.as_str())
        .bind(&seal.0[..])
        .execute(connection)
        .await?;
    Ok(())
}

/// Stores the HMACs of erased events of a run that is copied from another store.
pub(crate) async fn keep_erasures(
    connection: &mut SqliteConnection,
    run: &RunId,
    erasures: &[(u64, Hash)],
) -> Result<(), JobError> {
    for (seq, seal) in erasures {
        sqlx::query(
            "INSERT OR REPLACE INTO erasures SELECT id, $2, $3 FROM runs WHERE runs.run = $1",
        )
        .bind(run.as_str())
        .bind(to_i64(*seq))
        .bind(&seal.0[..])
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// Reads the HMACs of a run, and checks that of its row. A file of an older version, which is not migrated for reading,
/// has none.
pub(crate) async fn read(
    readers: &SqlitePool,
    run: &RunId,
    key: &LogKey,
) -> Result<RunSeals, LogError> {
    let absent = RunSeals::new(RowSeal::Absent, BTreeMap::new());
    let row = sqlx::query("SELECT * FROM runs WHERE run = $1").bind(run.as_str());
    let Some(row) = row.fetch_optional(readers).await.map_err(Fault::from)? else {
        return Ok(absent);
    };
    let seal: Option<&[u8]> = match row.try_get("seal") {
        Err(sqlx::Error::ColumnNotFound(_)) => return Ok(absent),
        seal => seal.map_err(Fault::from)?,
    };
    let verdict = key.check_row(&kept_row(&row)?, seal);
    let rows = sqlx::query("SELECT seq, seal FROM erasures WHERE run_id = $1")
        .bind(row.try_get::<i64, _>("id").map_err(Fault::from)?)
        .fetch_all(readers)
        .await
        .map_err(Fault::from)?;
    let erasure = |row: &SqliteRow| -> Result<(u64, Hash), LogError> {
        let seq = to_u64(row.try_get("seq").map_err(Fault::from)?);
        Ok((seq, decode_hash(row, "seal", seq)?))
    };
    let erasures: Result<BTreeMap<u64, Hash>, LogError> = rows.iter().map(erasure).collect();
    Ok(RunSeals::new(verdict, erasures?))
}

fn kept_row(row: &SqliteRow) -> Result<KeptRow<'_>, LogError> {
    let last_seq = to_u64(row.try_get("last_seq").map_err(Fault::from)?);
    Ok(KeptRow {
        run: row.try_get("run").map_err(Fault::from)?,
        session: row.try_get("session").map_err(Fault::from)?,
        parent: row.try_get("parent").map_err(Fault::from)?,
        branch_of: row.try_get("branch_of").map_err(Fault::from)?,
        last_seq,
        head: decode_hash(row, "head", last_seq)?,
        summary: row.try_get("summary").map_err(Fault::from)?,
        terms: row.try_get("terms").map_err(Fault::from)?,
        labels: row.try_get("labels").map_err(Fault::from)?,
    })
}
