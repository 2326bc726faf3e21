//! Reads of all runs' events after a cursor.
//!
//! The number of an event is its row id. Only one transaction writes at a time; it takes the next free numbers and
//! becomes visible as a whole when committed. So a reader that sees a number sees every smaller one, and no event is
//! added before it: a reader that continues after the greatest number it saw skips nothing. Numbers are never reused:
//! if the newest event is removed, its row stays, empty and without a run (`removal.rs`).

use backstop_event_log::{Cursor, EventFilter, FeedPage, FeedRecord, LogError};
use layer0::event::Hash;
use layer0::id::RunId;
use sqlx::Row;
use sqlx::sqlite::{SqlitePool, SqliteRow};

use crate::database::Database;
use crate::fault::Fault;
use crate::rows::{decode_record, to_i64, to_u64};

// Constants in SQLite's integer type.
const LOOKED_AT: u64 = FeedPage::MAX_LOOKED_AT as u64;
const MAX_RECORDS: u64 = FeedPage::MAX_RECORDS as u64;
const MAX_BYTES: u64 = FeedPage::MAX_BYTES as u64;

/// Condition for events with `$1 < id <= $2`, of the session `$3` and the types `$4` if these are given.
macro_rules! wanted {
    () => {
        "events.id > $1 AND events.id <= $2 AND ($3 IS NULL OR runs.session = $3) \
         AND ($4 IS NULL OR EXISTS (SELECT 1 FROM json_each($4) AS wanted WHERE CASE \
         WHEN wanted.value LIKE '%*' \
         THEN substr(events.type, 1, length(wanted.value) - 1) || '*' = wanted.value \
         ELSE events.type = wanted.value END))"
    };
}

/// Reads the first page of the selected events: at most `$5` events, and payloads of `$6` bytes.
macro_rules! page {
    ($wanted:expr) => {
        concat!(
            $wanted,
            " ORDER BY events.id LIMIT $5), \
             sized AS (SELECT *, count(*) OVER () AS rows, sum(bytes) OVER (ORDER BY id) - bytes \
             AS before FROM wanted) \
             SELECT events.*, sized.run, sized.rows FROM sized CROSS JOIN events \
             ON events.id = sized.id WHERE before < $6 ORDER BY events.id"
        )
    };
}

/// The events of all runs or of a session. The row id of a removed run may be reused while its events are still being
/// removed.
const OF_ALL: &str = page!(concat!(
    "WITH wanted AS MATERIALIZED (SELECT events.id, runs.run, octet_length(events.data) AS bytes \
     FROM events CROSS JOIN runs ON runs.id = events.run_id WHERE ",
    wanted!(),
    " AND NOT EXISTS (SELECT 1 FROM removed WHERE removed.run_id = events.run_id \
     AND events.id <= removed.event)"
));

/// The events of the run `$7`, along their links back from its event `$8` or its newest event, so that events of other
/// runs are not read.
const OF_RUN: &str = page!(concat!(
    "WITH RECURSIVE linked (id, prev, run_id) AS (SELECT events.id, prev, run_id FROM runs \
     JOIN events ON events.id = coalesce($8, runs.last_event) AND events.run_id = runs.id \
     WHERE runs.run = $7 AND events.id > $1 UNION ALL SELECT events.id, events.prev, events.run_id \
     FROM linked JOIN events ON events.id = linked.prev AND events.id < linked.id \
     AND events.run_id = linked.run_id WHERE events.id > $1), \
     wanted AS MATERIALIZED (SELECT events.id, runs.run, octet_length(events.data) AS bytes \
     FROM linked CROSS JOIN events ON events.id = linked.id \
     CROSS JOIN runs ON runs.id = events.run_id WHERE ",
    wanted!()
));

/// Start of a session: the first event of its first run.
const START_OF_SESSION: &str = "WITH RECURSIVE linked (id, prev, run_id) AS \
    (SELECT events.id, prev, run_id FROM runs JOIN events ON events.id = runs.last_event \
    AND events.run_id = runs.id \
    WHERE runs.id = (SELECT min(id) FROM runs WHERE session = $1) \
    UNION ALL SELECT events.id, events.prev, events.run_id FROM linked JOIN events \
    ON events.id = linked.prev AND events.id < linked.id AND events.run_id = linked.run_id) \
    SELECT min(id) FROM linked";

/// Reads a page of the events after a cursor.
pub(crate) async fn read(
    database: &Database,
    filter: &EventFilter,
    cursor: &Cursor,
) -> Result<FeedPage, LogError> {
    let (readers, mark) = (database.readers(), database.mark().await?);
    let end = end(readers, mark).await?;
    let last = end.number().unwrap_or_default();
    let after = match cursor.number() {
        None => return Ok(FeedPage::new(Vec::new(), end, true)),
        Some(after)
            if after <= last && cursor.fits_store(mark) && fits(readers, cursor, after).await? =>
        {
            after
        }
        Some(_) => return Err(LogError::ForeignCursor(*cursor)),
    };
    if after == last {
        return Ok(FeedPage::new(Vec::new(), *cursor, true));
    }
    let after = find_start(readers, filter, after, last).await?;
    let until = match &filter.run {
        Some(run) => database.waypoints().page_end(readers, run, after).await?,
        None => Some(after.saturating_add(LOOKED_AT)),
    };
    let until = until.filter(|until| *until < last);
    let rows = rows(readers, filter, (after, last), until).await?;
    let wanted: i64 = rows.first().map_or(Ok(0), |row| row.try_get("rows")).map_err(Fault::from)?;
    let is_whole =
        to_u64(wanted) < MAX_RECORDS && rows.len() == usize::try_from(wanted).unwrap_or(0);
    let records = rows.iter().map(|row| read_row(row, mark)).filter_map(Result::transpose);
    let records = records.collect::<Result<Vec<_>, _>>()?;
    let read_to = match (is_whole, rows.last(), until) {
        (false, Some(row), _) => read_cursor(row, mark)?,
        (_, _, None) => end,
        (_, _, Some(until)) => {
            Cursor::behind(until, hash_at(readers, until).await?.as_ref()).in_store(mark)
        }
    };
    Ok(FeedPage::new(records, read_to, is_whole && until.is_none()))
}

/// Returns the position after the newest event.
async fn end(readers: &SqlitePool, mark: Option<u32>) -> Result<Cursor, LogError> {
    let newest = sqlx::query("SELECT id, hash FROM events ORDER BY id DESC LIMIT 1")
        .fetch_optional(readers)
        .await
        .map_err(Fault::from)?;
    newest.as_ref().map_or(Ok(Cursor::start()), |row| read_cursor(row, mark))
}

/// Returns whether a cursor can be after this event; `true` if the event was removed.
async fn fits(readers: &SqlitePool, cursor: &Cursor, number: u64) -> Result<bool, LogError> {
    Ok(hash_at(readers, number).await?.is_none_or(|hash| cursor.fits(&hash)))
}

/// Returns the number after which to read: a session that is read from the start has no event before its first run.
async fn find_start(
    readers: &SqlitePool,
    filter: &EventFilter,
    after: u64,
    last: u64,
) -> Result<u64, LogError> {
    let (None, Some(session), 0) = (&filter.run, &filter.session, after) else { return Ok(after) };
    let first: Option<i64> = sqlx::query_scalar(START_OF_SESSION)
        .bind(session.as_str())
        .fetch_one(readers)
        .await
        .map_err(Fault::from)?;
    // Runs that started in the meantime are after `last`.
    Ok(first.map_or(last, |first| to_u64(first).saturating_sub(1)).min(last))
}

/// Reads the first events after `after`, up to the event `until` if there is one, else up to `last`.
async fn rows(
    readers: &SqlitePool,
    filter: &EventFilter,
    (after, last): (u64, u64),
    until: Option<u64>,
) -> Result<Vec<SqliteRow>, LogError> {
    let types = (!filter.types.is_empty()).then(|| serde_json::to_string(&filter.types));
    let types = types.transpose().map_err(|error| LogError::Failed(error.into()))?;
    let query = sqlx::query(if filter.run.is_some() { OF_RUN } else { OF_ALL })
        .bind(to_i64(after))
        .bind(to_i64(until.unwrap_or(last)))
        .bind(filter.session.as_ref().map(|session| session.as_str().to_owned()))
        .bind(types)
        .bind(to_i64(MAX_RECORDS))
        .bind(to_i64(MAX_BYTES));
    let query = match &filter.run {
        Some(run) => query.bind(run.as_str()).bind(until.map(to_i64)),
        None => query,
    };
    Ok(query.fetch_all(readers).await.map_err(Fault::from)?)
}

/// Decodes an event; a row that was changed into something else is skipped, so that it does not block later events.
fn read_row(row: &SqliteRow, mark: Option<u32>) -> Result<Option<FeedRecord>, LogError> {
    let run: RunId = row.try_get::<String, _>("run").map_err(Fault::from)?.into();
    match decode_record(row) {
        Ok(record) => Ok(Some(FeedRecord::new(run, record, read_cursor(row, mark)?))),
        Err(error) => {
            tracing::warn!(%run, %error, "an event cannot be read; followers go on without it");
            Ok(None)
        }
    }
}

fn read_cursor(row: &SqliteRow, mark: Option<u32>) -> Result<Cursor, LogError> {
    let number = to_u64(row.try_get("id").map_err(Fault::from)?);
    let hash: Option<&[u8]> = row.try_get("hash").ok();
    Ok(Cursor::behind(number, hash.and_then(hash_from).as_ref()).in_store(mark))
}

async fn hash_at(readers: &SqlitePool, number: u64) -> Result<Option<Hash>, LogError> {
    let hash: Option<Vec<u8>> = sqlx::query_scalar("SELECT hash FROM events WHERE id = $1")
        .bind(to_i64(number))
        .fetch_optional(readers)
        .await
        .map_err(Fault::from)?;
    Ok(hash.and_then(|hash| hash_from(&hash)))
}

/// Decodes a hash; the remains of a removed event have none.
fn hash_from(bytes: &[u8]) -> Option<Hash> {
    bytes.try_into().ok().map(Hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;

    /// Spec: X2. What stands before the cursor costs nothing: events are found by their numbers.
    #[tokio::test]
    async fn pages_are_read_by_row_id() {
        let database = Database::in_memory().await.unwrap();
        for statement in [OF_ALL, OF_RUN, START_OF_SESSION] {
            let plan = plan(&database, statement).await;
            let of_tables: Vec<&String> = plan
                .iter()
                .filter(|line| ["events", "runs", "removed"].iter().any(|it| line.contains(it)))
                .collect();
            assert!(!of_tables.is_empty(), "{plan:#?}");
            assert!(of_tables.iter().all(|line| line.starts_with("SEARCH")), "{plan:#?}");
        }
        let plan = plan(&database, OF_ALL).await;
        let by_range = |line: &String| line.contains("(rowid>? AND rowid<?)");
        assert!(plan.iter().any(by_range), "{plan:#?}");
    }
}
