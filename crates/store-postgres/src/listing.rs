//! Reads, lists and counts of errors and results, each with an index.

use backstop_error_store::{
    CountBy, ErrorCount, ErrorFilter, ErrorRecord, ErrorStats, Lookup, Origin, ResultEntry,
    ResultFilter, StoreError,
};
use layer0::id::{ErrorId, SessionId};
use layer0::{Code, Timestamp, code};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row};

use crate::fault::Fault;
use crate::pool::ConnectionPool;
use crate::rows::to_u64;
use crate::runs::{between, names, of_code};
use crate::text::{column, encode_text, optional};

const COLUMNS: &str = "SELECT id, session, run, call_id, tool, reason, code, occurrences, at, \
    last_at, chars_kept, summary, raw FROM backstop.errors WHERE true";

/// Returns an error by its id.
pub(crate) async fn error(
    pool: &ConnectionPool,
    session: Option<&SessionId>,
    id: &ErrorId,
) -> Result<Lookup<ErrorRecord>, StoreError> {
    let mut query = QueryBuilder::new(COLUMNS);
    query.push(" AND id = ").push_bind(encode_text(id.as_str()).into_owned());
    let row = query.build().fetch_optional(&mut *pool.lend().await?).await.map_err(Fault::from)?;
    match row.as_ref().map(decode_error_record).transpose()? {
        Some(record) if session.is_none_or(|session| session == record.session()) => {
            Ok(Lookup::Found(record))
        }
        Some(_) => Ok(Lookup::Missing),
        None => look_up_removed(pool, session, id.as_str()).await,
    }
}

/// Returns whether an id without a row was removed.
pub(crate) async fn look_up_removed<T>(
    pool: &ConnectionPool,
    session: Option<&SessionId>,
    id: &str,
) -> Result<Lookup<T>, StoreError> {
    let of = sqlx::query("SELECT session FROM backstop.expired WHERE id = $1")
        .bind(&*encode_text(id))
        .fetch_optional(&mut *pool.lend().await?)
        .await
        .map_err(Fault::from)?;
    let of = of.map(|row| column(&row, "session")).transpose().map_err(Fault::from)?;
    Ok(match of {
        Some(of) if session.is_none_or(|session| session.as_str() == of) => Lookup::Expired,
        _ => Lookup::Missing,
    })
}

/// Lists errors, newest first.
pub(crate) async fn errors(
    pool: &ConnectionPool,
    filter: &ErrorFilter,
) -> Result<Vec<ErrorRecord>, StoreError> {
    let mut query = QueryBuilder::new(COLUMNS);
    choose(&mut query, filter);
    let rows = query.build().fetch_all(&mut *pool.lend().await?).await.map_err(Fault::from)?;
    rows.iter().map(decode_error_record).collect()
}

/// Builds the query for the newest matching errors.
fn choose(query: &mut QueryBuilder<Postgres>, filter: &ErrorFilter) {
    let ErrorFilter { session, runs, tool, reason, from, to, id_prefix, limit, .. } = filter;
    if let Some(runs) = runs {
        query.push(" AND id IN (SELECT id FROM backstop.refers WHERE run = ANY(");
        query.push_bind(names(runs)).push("))");
    }
    if let Some(session) = session {
        query.push(" AND session = ").push_bind(encode_text(session.as_str()).into_owned());
    }
    if let Some(tool) = tool {
        query.push(" AND tool = ").push_bind(encode_text(tool).into_owned());
    }
    if let Some(from) = from {
        query.push(" AND at >= ").push_bind(from.as_millis());
    }
    if let Some(to) = to {
        query.push(" AND at < ").push_bind(to.as_millis());
    }
    if let Some(reason) = reason {
        of_code(query, "reason", reason);
    }
    if let Some(prefix) = id_prefix {
        between(query, "id", &encode_text(prefix));
    }
    query.push(" ORDER BY at DESC, number DESC LIMIT ").push_bind(limit.map(i64::from));
}

/// Lists results, newest first.
pub(crate) async fn results(
    pool: &ConnectionPool,
    filter: &ResultFilter,
) -> Result<Vec<ResultEntry>, StoreError> {
    let ResultFilter { session, run, tool, from, to, id_prefix, limit, .. } = filter;
    let mut query = QueryBuilder::new(
        "SELECT id, session, run, call_id, tool, at, bytes FROM backstop.results WHERE true",
    );
    let texts = [
        ("session", session.as_ref().map(ToString::to_string)),
        ("run", run.as_ref().map(ToString::to_string)),
        ("tool", tool.clone()),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            query.push(format_args!(" AND {name} = ")).push_bind(encode_text(&text).into_owned());
        }
    }
    if let Some(from) = from {
        query.push(" AND at >= ").push_bind(from.as_millis());
    }
    if let Some(to) = to {
        query.push(" AND at < ").push_bind(to.as_millis());
    }
    if let Some(prefix) = id_prefix {
        between(&mut query, "id", &encode_text(prefix));
    }
    query.push(" ORDER BY at DESC, number DESC LIMIT ").push_bind(limit.map(i64::from));
    let rows = query.build().fetch_all(&mut *pool.lend().await?).await.map_err(Fault::from)?;
    rows.iter().map(decode_result_entry).collect()
}

fn decode_origin(row: &PgRow) -> Result<Origin, StoreError> {
    let text = |name| column(row, name).map_err(Fault::from);
    let at = Timestamp::from_millis(row.try_get("at").map_err(Fault::from)?);
    Ok(Origin::new(at, text("session")?, text("run")?, text("call_id")?, text("tool")?))
}

fn decode_result_entry(row: &PgRow) -> Result<ResultEntry, StoreError> {
    let id = column(row, "id").map_err(Fault::from)?;
    Ok(ResultEntry::new(id, decode_origin(row)?, read_number(row, "bytes")?))
}

/// Counts the errors that match a filter in groups.
pub(crate) async fn count(
    pool: &ConnectionPool,
    filter: &ErrorFilter,
    by: CountBy,
) -> Result<Vec<ErrorCount>, StoreError> {
    let key = match by {
        CountBy::Code => "reason",
        CountBy::Day => "to_char(to_timestamp(at / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
        _ => "tool",
    };
    let order = if by == CountBy::Day { "key" } else { "occurrences DESC, key" };
    let mut all = filter.clone();
    let limit = all.limit.take();
    let mut query = QueryBuilder::new(format!(
        "SELECT key, count(*) AS errors, sum(occurrences)::bigint AS occurrences, \
         sum(chars_kept * occurrences)::bigint AS chars_kept FROM \
         (SELECT {key} AS key, occurrences, chars_kept FROM backstop.errors WHERE true"
    ));
    choose(&mut query, &all);
    query.push(format_args!(") AS chosen GROUP BY key ORDER BY {order} LIMIT "));
    query.push_bind(limit.map(i64::from));
    let rows = query.build().fetch_all(&mut *pool.lend().await?).await.map_err(Fault::from)?;
    rows.iter().map(decode_error_count).collect()
}

fn decode_error_count(row: &PgRow) -> Result<ErrorCount, StoreError> {
    let key = column(row, "key").map_err(Fault::from)?;
    let number = |name| read_number(row, name);
    Ok(ErrorCount::new(key, number("errors")?, number("occurrences")?, number("chars_kept")?))
}

fn read_number(row: &PgRow, name: &str) -> Result<u64, StoreError> {
    Ok(to_u64(row.try_get(name).map_err(Fault::from)?))
}

/// Counts errors, the most characters kept first.
pub(crate) async fn stats(
    pool: &ConnectionPool,
    limit: Option<u32>,
) -> Result<Vec<ErrorStats>, StoreError> {
    let rows = sqlx::query(
        "SELECT tool, session, reason, code, count(*) AS errors, \
         sum(occurrences)::bigint AS occurrences, \
         sum(chars_kept * occurrences)::bigint AS chars_kept FROM backstop.errors \
         GROUP BY tool, session, reason, code \
         ORDER BY chars_kept DESC, tool, session, reason, coalesce(code, '') LIMIT $1",
    )
    .bind(limit.map(i64::from))
    .fetch_all(&mut *pool.lend().await?)
    .await
    .map_err(Fault::from)?;
    rows.iter().map(decode_error_stats).collect()
}

fn decode_error_stats(row: &PgRow) -> Result<ErrorStats, StoreError> {
    let text = |name| column(row, name).map_err(Fault::from);
    let number = |name| read_number(row, name);
    let author = optional(row, "code").map_err(Fault::from)?;
    let reason = known_code(&text("reason")?);
    Ok(ErrorStats::new(text("tool")?, reason, author, text("session")?.into()).counting(
        number("errors")?,
        number("occurrences")?,
        number("chars_kept")?,
    ))
}

fn decode_error_record(row: &PgRow) -> Result<ErrorRecord, StoreError> {
    let text = |name: &str| column(row, name).map_err(Fault::from);
    let author = optional(row, "code").map_err(Fault::from)?;
    let reason = known_code(&text("reason")?);
    let raw: String = row.try_get("raw").map_err(Fault::from)?;
    let record = ErrorRecord::of_row(
        text("id")?,
        decode_origin(row)?,
        reason,
        author,
        &text("summary")?,
        &raw,
    );
    let last_at = Timestamp::from_millis(row.try_get("last_at").map_err(Fault::from)?);
    Ok(record.with_occurrences(
        read_number(row, "occurrences")?,
        last_at,
        read_number(row, "chars_kept")?,
    ))
}

/// Only codes of the catalogue are stored; a row with another code was edited by hand.
fn known_code(text: &str) -> Code {
    Code::new(code::find(text).map_or(code::TOOL_OTHER, |entry| entry.code))
}
