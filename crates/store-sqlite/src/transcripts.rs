//! The parts of session transcripts.

use async_trait::async_trait;
use backstop_event_log::{LogError, TranscriptPart};
use layer0::event::Hash;
use layer0::id::RunId;
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{Row, SqliteConnection};

use crate::chore::Chore;
use crate::fault::Fault;
use crate::job_error::JobError;
use crate::rows::{decode_hash, to_i64};

/// The most parts of one read: links that lead in circles end there.
const MAX_PARTS: i64 = 1_000;

/// Reads the parts up to a run, newest first.
pub(crate) async fn read(
    readers: &SqlitePool,
    until: &RunId,
) -> Result<Vec<TranscriptPart>, LogError> {
    let rows = sqlx::query(
        "WITH RECURSIVE part (run_id, run, place) AS (SELECT runs.id, runs.run, 1 FROM runs \
         JOIN transcripts AS kept ON kept.run_id = runs.id AND kept.head = runs.head \
         WHERE runs.run = $1 UNION ALL SELECT runs.id, runs.run, place + 1 FROM part \
         JOIN transcripts AS last ON last.run_id = part.run_id JOIN runs ON runs.run = last.follows \
         JOIN transcripts AS kept ON kept.run_id = runs.id AND kept.head = runs.head \
         WHERE place < $2) \
         SELECT part.run, kept.* FROM part JOIN transcripts AS kept USING (run_id) ORDER BY place",
    )
    .bind(until.as_str())
    .bind(MAX_PARTS)
    .fetch_all(readers)
    .await
    .map_err(Fault::from)?;
    rows.iter().map(part_in).collect()
}

fn part_in(row: &SqliteRow) -> Result<TranscriptPart, LogError> {
    let text = |column| row.try_get::<Option<String>, _>(column).map_err(Fault::from);
    let run = RunId::from(text("run")?.unwrap_or_default());
    let hash = |column| -> Result<Hash, LogError> { decode_hash(row, column, 0) };
    let part_text = text("text")?.unwrap_or_default();
    let follows = text("follows")?.map(RunId::from);
    Ok(TranscriptPart::from_stored(run, hash("head")?, follows, part_text, hash("digest")?))
}

/// Keeps parts, unless a text was erased since they were made.
pub(crate) struct KeepTranscript {
    pub(crate) parts: Vec<TranscriptPart>,
    pub(crate) erasures: u64,
}

#[async_trait]
impl Chore for KeepTranscript {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let mut kept = 0;
        for part in &self.parts {
            let written = sqlx::query(
                "INSERT OR REPLACE INTO transcripts (run_id, head, follows, text, digest) \
                 SELECT id, head, $3, $4, $5 FROM runs WHERE run = $1 AND head = $2 \
                 AND (SELECT erasures FROM store) = $6",
            )
            .bind(part.run.as_str())
            .bind(&part.head.0[..])
            .bind(part.follows.as_ref().map(RunId::as_str))
            .bind(&*part.text)
            .bind(&part.digest.0[..])
            .bind(to_i64(self.erasures))
            .execute(&mut *connection)
            .await?;
            kept += written.rows_affected();
        }
        Ok(kept)
    }
}
