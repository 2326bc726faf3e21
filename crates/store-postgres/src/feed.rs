//! Reads of all runs' events after a cursor.
//!
//! The place of an event begins with the id of the transaction that wrote it. A reader reads only places before those
//! of the oldest open transaction that appends: no transaction can write there any more, so that a reader that
//! continues after such a place skips nothing. A running append delays later events; other transactions of the server
//! do not.

use backstop_event_log::{Cursor, EventFilter, FeedPage, FeedRecord, LogError};
use layer0::event::Hash;
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::fault::Fault;
use crate::pool::ConnectionPool;
use crate::rows::{decode_record, decode_run_id, to_i64, to_u64};
use crate::text::encode_text;

// Constants in PostgreSQL's integer type.
const LOOKED_AT: i64 = FeedPage::MAX_LOOKED_AT as i64;
const MAX_RECORDS: i64 = FeedPage::MAX_RECORDS as i64;
const MAX_BYTES: i64 = FeedPage::MAX_BYTES as i64;

/// Returns the first place at which a transaction may still write.
///
/// Every transaction that appends locks the table of events before it has an id, and keeps the lock until its events
/// are visible. So an open transaction without that lock gets its id later, and a transaction whose events the next
/// statement does not see has the lock. The complete events therefore end at the least id of the lock's holders, or
/// else at the next id. The lock shows only 32 bits of an id; the next id completes them.
///
/// A standby does not show the locks of its primary. There the events end at the oldest open transaction, whether or
/// not it appends.
const OPEN: &str = "WITH ids AS (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next, \
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest), \
    locks AS MATERIALIZED (SELECT locktype, database, relation, mode, virtualtransaction, \
    transactionid::text::bigint AS id FROM pg_locks WHERE granted) \
    SELECT ((CASE WHEN pg_is_in_recovery() THEN ids.oldest ELSE least(ids.next, (SELECT min(ids.next - \
    (((ids.next - own.id + 2147483648) % 4294967296 + 4294967296) % 4294967296 - 2147483648)) \
    FROM locks AS appends JOIN locks AS own ON own.virtualtransaction = appends.virtualtransaction \
    AND own.locktype = 'transactionid' AND own.mode = 'ExclusiveLock' \
    WHERE appends.locktype = 'relation' AND appends.relation = 'backstop.events'::regclass \
    AND appends.mode = 'RowExclusiveLock' \
    AND appends.database = (SELECT oid FROM pg_database WHERE datname = current_database()))) END \
    + meta.tx_offset) << 20)::bigint FROM ids, backstop.meta AS meta";

/// Returns the newest event before the place `$1`, the last place of a removed event and the mark of the store, all in
/// one snapshot, so that an event that is removed meanwhile is one of the two.
const LAST: &str = "SELECT newest.place, newest.hash, meta.removed_until, meta.mark FROM backstop.meta AS meta \
    LEFT JOIN LATERAL (SELECT place, hash FROM backstop.events WHERE place < $1 ORDER BY place DESC LIMIT 1) \
    AS newest ON true";

/// Selects the events with `$1 < place <= $2`, of the session `$3` and the types `$4` if these are given, at most `$5`
/// events and `$6` bytes.
macro_rules! page {
    ($of_run:literal, $order:literal) => {
        concat!(
            "WITH wanted AS (SELECT events.run_id, events.seq, events.place, runs.run, \
             octet_length(events.data)::bigint AS bytes \
             FROM backstop.events AS events JOIN backstop.runs AS runs ON runs.id = events.run_id \
             WHERE events.place > $1 AND events.place <= $2 AND ($3::text IS NULL OR runs.session = $3) \
             AND ($4::text[] IS NULL OR events.type LIKE ANY ($4))",
            $of_run,
            " ORDER BY ",
            $order,
            " LIMIT $5), \
             sized AS (SELECT *, count(*) OVER () AS rows, (sum(bytes) OVER (ORDER BY place) - bytes)::bigint \
             AS before FROM wanted) \
             SELECT events.*, sized.run, sized.rows FROM sized \
             JOIN backstop.events AS events ON events.run_id = sized.run_id AND events.seq = sized.seq \
             WHERE before < $6 ORDER BY events.place"
        )
    };
}

/// The events of all runs, or of a session.
const OF_ALL: &str = page!("", "events.place");
/// The events of the run `$7`, found by their numbers, so that events of other runs are not read.
const OF_RUN: &str =
    page!(" AND events.run_id = (SELECT id FROM backstop.runs WHERE run = $7)", "events.seq");

/// Reads a page of the events after a cursor.
pub(crate) async fn read(
    pool: &ConnectionPool,
    filter: &EventFilter,
    cursor: &Cursor,
) -> Result<FeedPage, LogError> {
    let open: i64 =
        sqlx::query_scalar(OPEN).fetch_one(&mut *pool.lend().await?).await.map_err(Fault::from)?;
    let Last { end, removed, mark } = last(pool, open).await?;
    let last = to_i64(end.number().unwrap_or_default());
    let is_known = |after| after <= last.max(removed) && cursor.fits_store(mark);
    let after = match cursor.number().map(|after| (after, to_i64(after))) {
        None => return Ok(FeedPage::new(Vec::new(), end, true)),
        Some((at, after)) if is_known(after) && fits(pool, cursor, at).await? => after,
        Some(_) => return Err(LogError::ForeignCursor(*cursor)),
    };
    if after >= last {
        return Ok(FeedPage::new(Vec::new(), *cursor, true));
    }
    let after = find_start(pool, filter, after, last).await?;
    let until = match filter.run {
        Some(_) => last,
        None => until(pool, after, last).await?,
    };
    let rows = rows(pool, filter, after, until).await?;
    let wanted: i64 = rows.first().map_or(Ok(0), |row| row.try_get("rows")).map_err(Fault::from)?;
    let is_whole =
        wanted < MAX_RECORDS && rows.len() == usize::try_from(wanted).unwrap_or(usize::MAX);
    let records = rows.iter().map(|row| read_row(row, mark)).filter_map(Result::transpose);
    let records = records.collect::<Result<Vec<_>, _>>()?;
    let read_to = match (is_whole, rows.last()) {
        (false, Some(row)) => read_cursor(row, mark)?,
        _ if until == last => end,
        _ => {
            let hash = hash_at(pool, until).await?;
            Cursor::behind(to_u64(until), hash.as_ref()).in_store(mark)
        }
    };
    Ok(FeedPage::new(records, read_to, is_whole && until == last))
}

/// The end of the log.
struct Last {
    /// The position after the newest event before all open transactions.
    end: Cursor,
    /// The last place of a removed event.
    removed: i64,
    /// The mark of the store.
    mark: Option<u32>,
}

async fn last(pool: &ConnectionPool, open: i64) -> Result<Last, LogError> {
    let row = sqlx::query(LAST).bind(open).fetch_one(&mut *pool.lend().await?).await;
    let row = row.map_err(Fault::from)?;
    let removed = row.try_get("removed_until").map_err(Fault::from)?;
    let newest: Option<i64> = row.try_get("place").map_err(Fault::from)?;
    let mark: i64 = row.try_get("mark").map_err(Fault::from)?;
    let mark = u32::try_from(mark).ok();
    let end = newest.map_or(Ok(Cursor::start()), |_| read_cursor(&row, mark))?;
    Ok(Last { end, removed, mark })
}

/// Returns whether a cursor can be after this event; `true` if the event was removed.
async fn fits(pool: &ConnectionPool, cursor: &Cursor, place: u64) -> Result<bool, LogError> {
    Ok(hash_at(pool, to_i64(place)).await?.is_none_or(|hash| cursor.fits(&hash)))
}

/// Returns the place after which to read: a session that is read from the start has no event before its first run.
async fn find_start(
    pool: &ConnectionPool,
    filter: &EventFilter,
    after: i64,
    last: i64,
) -> Result<i64, LogError> {
    let (None, Some(session), 0) = (&filter.run, &filter.session, after) else { return Ok(after) };
    let first: Option<i64> = sqlx::query_scalar(
        "SELECT min(place) FROM backstop.events WHERE run_id = \
         (SELECT min(id) FROM backstop.runs WHERE session = $1)",
    )
    .bind(&*encode_text(session.as_str()))
    .fetch_one(&mut *pool.lend().await?)
    .await
    .map_err(Fault::from)?;
    // Runs that started in the meantime are after `last`.
    Ok(first.map_or(last, |first| first - 1).min(last))
}

/// Returns the last event to read, which limits the number of events read for a page.
async fn until(pool: &ConnectionPool, after: i64, last: i64) -> Result<i64, LogError> {
    let until: Option<i64> = sqlx::query_scalar(
        "SELECT max(place) FROM (SELECT place FROM backstop.events \
         WHERE place > $1 AND place <= $2 ORDER BY place LIMIT $3) AS looked_at",
    )
    .bind(after)
    .bind(last)
    .bind(LOOKED_AT)
    .fetch_one(&mut *pool.lend().await?)
    .await
    .map_err(Fault::from)?;
    Ok(until.unwrap_or(last))
}

async fn rows(
    pool: &ConnectionPool,
    filter: &EventFilter,
    after: i64,
    until: i64,
) -> Result<Vec<PgRow>, LogError> {
    let types = (!filter.types.is_empty()).then(|| {
        let pattern = |wanted: &String| {
            let wanted = wanted.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
            match wanted.strip_suffix('*') {
                Some(family) => format!("{family}%"),
                None => wanted,
            }
        };
        filter.types.iter().map(pattern).collect::<Vec<_>>()
    });
    let query = sqlx::query(if filter.run.is_some() { OF_RUN } else { OF_ALL })
        .bind(after)
        .bind(until)
        .bind(filter.session.as_ref().map(|session| encode_text(session.as_str()).into_owned()))
        .bind(types)
        .bind(MAX_RECORDS)
        .bind(MAX_BYTES);
    let query = match &filter.run {
        Some(run) => query.bind(encode_text(run.as_str()).into_owned()),
        None => query,
    };
    Ok(query.fetch_all(&mut *pool.lend().await?).await.map_err(Fault::from)?)
}

/// Decodes an event; a row that was changed into something else is skipped, so that it does not block later events.
fn read_row(row: &PgRow, mark: Option<u32>) -> Result<Option<FeedRecord>, LogError> {
    let run = decode_run_id(row)?;
    match decode_record(row) {
        Ok(record) => Ok(Some(FeedRecord::new(run, record, read_cursor(row, mark)?))),
        Err(error) => {
            tracing::warn!(%run, %error, "an event cannot be read; followers go on without it");
            Ok(None)
        }
    }
}

fn read_cursor(row: &PgRow, mark: Option<u32>) -> Result<Cursor, LogError> {
    let place = to_u64(row.try_get("place").map_err(Fault::from)?);
    let hash: Option<&[u8]> = row.try_get("hash").ok();
    Ok(Cursor::behind(place, hash.and_then(hash_from).as_ref()).in_store(mark))
}

async fn hash_at(pool: &ConnectionPool, place: i64) -> Result<Option<Hash>, LogError> {
    let hash: Option<Vec<u8>> =
        sqlx::query_scalar("SELECT hash FROM backstop.events WHERE place = $1")
            .bind(place)
            .fetch_optional(&mut *pool.lend().await?)
            .await
            .map_err(Fault::from)?;
    Ok(hash.and_then(|hash| hash_from(&hash)))
}

fn hash_from(bytes: &[u8]) -> Option<Hash> {
    bytes.try_into().ok().map(Hash)
}
