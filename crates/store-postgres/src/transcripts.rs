//! The parts of session transcripts.

use async_trait::async_trait;
use backstop_event_log::{LogError, TranscriptPart};
use layer0::id::RunId;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use crate::fault::Fault;
use crate::pool::ConnectionPool;
use crate::rows::{decode_hash, decode_run_id, to_i64};
use crate::text::{encode_text, optional};
use crate::transact::TransactionWork;

/// The most parts of one read: links that lead in circles end there.
const MAX_PARTS: i64 = 1_000;

/// Reads the parts up to a run, newest first.
pub(crate) async fn read(
    pool: &ConnectionPool,
    until: &RunId,
) -> Result<Vec<TranscriptPart>, LogError> {
    let rows = sqlx::query(
        "WITH RECURSIVE part (run_id, run, follows, place) AS ( \
         SELECT runs.id, runs.run, kept.follows, 1::bigint FROM backstop.runs AS runs \
         JOIN backstop.transcripts AS kept ON kept.run_id = runs.id AND kept.head = runs.head \
         WHERE runs.run = $1 UNION ALL \
         SELECT runs.id, runs.run, kept.follows, place + 1 FROM part \
         JOIN backstop.runs AS runs ON runs.run = part.follows \
         JOIN backstop.transcripts AS kept ON kept.run_id = runs.id AND kept.head = runs.head \
         WHERE place < $2) SELECT part.run, kept.head, kept.follows, kept.text, kept.digest \
         FROM part JOIN backstop.transcripts AS kept ON kept.run_id = part.run_id ORDER BY place",
    )
    .bind(&*encode_text(until.as_str()))
    .bind(MAX_PARTS)
    .fetch_all(&mut *pool.lend().await?)
    .await
    .map_err(Fault::from)?;
    rows.iter().map(part_in).collect()
}

fn part_in(row: &PgRow) -> Result<TranscriptPart, LogError> {
    let text: String = row.try_get("text").map_err(Fault::from)?;
    let follows = optional(row, "follows").map_err(Fault::from)?.map(RunId::from);
    let (head, digest) = (decode_hash(row, "head", 0)?, decode_hash(row, "digest", 0)?);
    Ok(TranscriptPart::from_stored(decode_run_id(row)?, head, follows, text, digest))
}

/// Keeps parts, unless a text was erased since they were made. The rows of the runs are locked first: an erasure that
/// is under way is counted before, or removes the part.
pub(crate) struct KeepTranscript<'a> {
    pub(crate) parts: &'a [TranscriptPart],
    pub(crate) erasures: u64,
}

#[async_trait]
impl TransactionWork for KeepTranscript<'_> {
    type Done = ();
    type Error = LogError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<(), LogError> {
        let parts = || self.parts.iter();
        let runs: Vec<String> =
            parts().map(|part| encode_text(part.run.as_str()).into_owned()).collect();
        sqlx::query("SELECT 1 FROM backstop.runs WHERE run = ANY($1) ORDER BY id FOR KEY SHARE")
            .bind(&runs)
            .execute(&mut *connection)
            .await
            .map_err(Fault::from)?;
        let follows: Vec<Option<String>> = parts()
            .map(|part| part.follows.as_ref().map(|run| encode_text(run.as_str()).into_owned()))
            .collect();
        let heads: Vec<Vec<u8>> = parts().map(|part| part.head.0.to_vec()).collect();
        // JSON is written as it is.
        let texts: Vec<&str> = parts().map(|part| &*part.text).collect();
        let digests: Vec<Vec<u8>> = parts().map(|part| part.digest.0.to_vec()).collect();
        sqlx::query(
            "INSERT INTO backstop.transcripts (run_id, head, follows, text, digest) \
             SELECT runs.id, part.head, part.follows, part.text, part.digest \
             FROM unnest($1::text[], $2::bytea[], $3::text[], $4::text[], $5::bytea[]) \
             AS part (run, head, follows, text, digest) \
             JOIN backstop.runs AS runs ON runs.run = part.run AND runs.head = part.head \
             WHERE (SELECT erasures FROM backstop.meta) = $6 ORDER BY runs.id \
             ON CONFLICT (run_id) DO UPDATE SET head = excluded.head, follows = excluded.follows, \
             text = excluded.text, digest = excluded.digest",
        )
        .bind(runs)
        .bind(heads)
        .bind(follows)
        .bind(texts)
        .bind(digests)
        .bind(to_i64(self.erasures))
        .execute(connection)
        .await
        .map_err(Fault::from)?;
        Ok(())
    }
}
