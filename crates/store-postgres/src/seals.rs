//! The HMACs of rows and erasures.

use std::collections::BTreeMap;

use backstop_event_log::{KeptRow, LogError, LogKey, RowSeal, RunSeals};
use layer0::event::Hash;
use layer0::id::RunId;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use crate::fault::Fault;
use crate::pool::ConnectionPool;
use crate::rows::{decode_hash, to_i64, to_u64};
use crate::text::encode_text;

/// Seals the rows of runs as they are in the transaction, each with its key.
pub(crate) async fn seal_rows(
    connection: &mut PgConnection,
    sealed: &[(&RunId, &LogKey)],
) -> Result<(), LogError> {
    if sealed.is_empty() {
        return Ok(());
    }
    let names: Vec<String> =
        sealed.iter().map(|(run, _)| encode_text(run.as_str()).into_owned()).collect();
    let rows = sqlx::query("SELECT * FROM backstop.runs WHERE run = ANY($1)")
        .bind(&names)
        .fetch_all(&mut *connection)
        .await
        .map_err(Fault::from)?;
    let (mut ids, mut seals) = (Vec::new(), Vec::new());
    for row in &rows {
        let kept = kept_row(row)?;
        let key = names.iter().zip(sealed).find(|(name, _)| *name == kept.run);
        let Some((_, (_, key))) = key else { continue };
        ids.push(row.try_get::<i64, _>("id").map_err(Fault::from)?);
        seals.push(key.seal_row(&kept).0.to_vec());
    }
    sqlx::query(
        "UPDATE backstop.runs AS runs SET seal = sealed.seal \
         FROM unnest($1::bigint[], $2::bytea[]) AS sealed (id, seal) WHERE runs.id = sealed.id",
    )
    .bind(ids)
    .bind(seals)
    .execute(connection)
    .await
    .map_err(Fault::from)?;
    Ok(())
}

/// Stores the HMACs of erased events of a run that is copied from another store.
pub(crate) async fn keep_erasures(
    connection: &mut PgConnection,
    run: &RunId,
    erasures: &[(u64, Hash)],
) -> Result<(), LogError> {
    if erasures.is_empty() {
        return Ok(());
    }
    let (seqs, seals): (Vec<i64>, Vec<Vec<u8>>) =
        erasures.iter().map(|(seq, seal)| (to_i64(*seq), seal.0.to_vec())).unzip();
    sqlx::query(
        "INSERT INTO backstop.erasures SELECT runs.id, sealed.seq, sealed.seal \
         FROM backstop.runs AS runs, unnest($2::bigint[], $3::bytea[]) AS sealed (seq, seal) \
         WHERE runs.run = $1 ON CONFLICT (run_id, seq) DO UPDATE SET seal = excluded.seal",
    )
    .bind(&*encode_text(run.as_str()))
    .bind(seqs)
    .bind(seals)
    .execute(connection)
    .await
    .map_err(Fault::from)?;
    Ok(())
}

/// Reads the HMACs of a run, and checks that of its row.
pub(crate) async fn read(
    pool: &ConnectionPool,
    run: &RunId,
    key: &LogKey,
) -> Result<RunSeals, LogError> {
    let row = sqlx::query("SELECT * FROM backstop.runs WHERE run = $1")
        .bind(&*encode_text(run.as_str()))
        .fetch_optional(&mut *pool.lend().await?)
        .await
        .map_err(Fault::from)?;
    let Some(row) = row else { return Ok(RunSeals::new(RowSeal::Absent, BTreeMap::new())) };
    let seal: Option<&[u8]> = row.try_get("seal").map_err(Fault::from)?;
    let verdict = key.check_row(&kept_row(&row)?, seal);
    let rows = sqlx::query("SELECT seq, seal FROM backstop.erasures WHERE run_id = $1")
        .bind(row.try_get::<i64, _>("id").map_err(Fault::from)?)
        .fetch_all(&mut *pool.lend().await?)
        .await
        .map_err(Fault::from)?;
    let erasure = |row: &PgRow| -> Result<(u64, Hash), LogError> {
        let seq = to_u64(row.try_get("seq").map_err(Fault::from)?);
        Ok((seq, decode_hash(row, "seal", seq)?))
    };
    let erasures: Result<BTreeMap<u64, Hash>, LogError> = rows.iter().map(erasure).collect();
    Ok(RunSeals::new(verdict, erasures?))
}

fn kept_row(row: &PgRow) -> Result<KeptRow<'_>, LogError> {
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
