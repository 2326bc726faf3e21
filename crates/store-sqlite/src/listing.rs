//! Reads, lists and counts of errors and results, each with an index.

use backstop_error_store::{
    CountBy, ErrorCount, ErrorFilter, ErrorRecord, ErrorStats, Lookup, Origin, ResultEntry,
    ResultFilter, StoreError,
};
use layer0::id::{ErrorId, RunId, SessionId};
use layer0::{Code, Timestamp, code};
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{QueryBuilder, Row, Sqlite};

use crate::fault::Fault;
use crate::runs::{of_code, push_runs};

const COLUMNS: &str = "SELECT id, session, run, call_id, tool, reason, code, occurrences, at, \
    last_at, chars_kept, summary, raw FROM errors";

/// Returns an error by its id.
pub(crate) async fn error(
    readers: &SqlitePool,
    session: Option<&SessionId>,
    id: &ErrorId,
) -> Result<Lookup<ErrorRecord>, StoreError> {
    let mut query = QueryBuilder::new(COLUMNS);
    query.push(" WHERE id = ").push_bind(id.as_str());
    let row = query.build().fetch_optional(readers).await.map_err(Fault::from)?;
    match row.as_ref().map(decode_error_record).transpose()? {
        Some(record) if session.is_none_or(|session| session == record.session()) => {
            Ok(Lookup::Found(record))
        }
        Some(_) => Ok(Lookup::Missing),
        None => look_up_removed(readers, session, id.as_str()).await,
    }
}

/// Returns whether an id without a row was removed.
pub(crate) async fn look_up_removed<T>(
    readers: &SqlitePool,
    session: Option<&SessionId>,
    id: &str,
) -> Result<Lookup<T>, StoreError> {
    let of: Option<String> = sqlx::query_scalar("SELECT session FROM expired WHERE id = $1")
        .bind(id)
        .fetch_optional(readers)
        .await
        .map_err(Fault::from)?;
    Ok(match of {
        Some(of) if session.is_none_or(|session| session.as_str() == of) => Lookup::Expired,
        _ => Lookup::Missing,
    })
}

/// Lists errors, newest first.
pub(crate) async fn errors(
    readers: &SqlitePool,
    filter: &ErrorFilter,
) -> Result<Vec<ErrorRecord>, StoreError> {
    let mut query = list(filter);
    let rows = query.build().fetch_all(readers).await.map_err(Fault::from)?;
    rows.iter().map(decode_error_record).collect()
}

/// Builds the query for the newest matching errors with an index: for a run, the index of its references. A `+`
/// prevents a lookup by tool instead of by session.
fn list(filter: &ErrorFilter) -> QueryBuilder<Sqlite> {
    let mut query = QueryBuilder::new("");
    choose(&mut query, COLUMNS, filter);
    query
}

fn choose(query: &mut QueryBuilder<Sqlite>, columns: &str, filter: &ErrorFilter) {
    let ErrorFilter { session, runs, tool, reason, from, to, id_prefix, limit, .. } = filter;
    query.push(columns);
    // The references of a single run are already in the required order.
    let run = runs.as_deref().and_then(|runs| <&[RunId; 1]>::try_from(runs).ok());
    let met = " WHERE number IN (SELECT number FROM refers WHERE number IS NOT NULL AND run ";
    match (run, runs) {
        (Some([run]), _) => {
            query.push(met).push("= ").push_bind(run.to_string());
        }
        (None, Some(runs)) => {
            query.push(met).push("IN ");
            push_runs(query, runs);
            query.push(")");
        }
        (None, None) => {
            query.push(" WHERE TRUE");
        }
    }
    if let Some(session) = session {
        query.push(" AND session = ").push_bind(session.to_string());
    }
    if let Some(tool) = tool {
        let column = if session.is_some() { " AND +tool = " } else { " AND tool = " };
        query.push(column).push_bind(tool.clone());
    }
    if let Some(from) = from {
        query.push(" AND at >= ").push_bind(from.as_millis());
    }
    if let Some(to) = to {
        query.push(" AND at < ").push_bind(to.as_millis());
    }
    if let Some(reason) = reason {
        // References lack this column.
        let of_reference = "(SELECT reason FROM errors WHERE errors.number = refers.number)";
        let column = if run.is_some() { of_reference } else { "reason" };
        of_code(query, column, reason);
    }
    if let Some(prefix) = id_prefix {
        // No character sorts after the last code point of Unicode.
        query.push(" AND id >= ").push_bind(prefix.clone());
        query.push(" AND id < ").push_bind(format!("{prefix}\u{10ffff}"));
    }
    let order = if id_prefix.is_some() { "+at" } else { "at" };
    query.push(format_args!(" ORDER BY {order} DESC, number DESC LIMIT "));
    query.push_bind(limit.map_or(-1, i64::from));
    if run.is_some() {
        query.push(") ORDER BY +at DESC, number DESC");
    }
}

/// Lists results, newest first.
pub(crate) async fn results(
    readers: &SqlitePool,
    filter: &ResultFilter,
) -> Result<Vec<ResultEntry>, StoreError> {
    let rows = list_results(filter).build().fetch_all(readers).await.map_err(Fault::from)?;
    rows.iter().map(decode_result_entry).collect()
}

/// Builds the query for the newest matching results. Unlike errors they have no index by tool, and they are few.
fn list_results(filter: &ResultFilter) -> QueryBuilder<Sqlite> {
    let ResultFilter { session, run, tool, from, to, id_prefix, limit, .. } = filter;
    let mut query = QueryBuilder::new(
        "SELECT id, session, run, call_id, tool, at, bytes FROM results WHERE TRUE",
    );
    let texts = [
        ("session", session.as_ref().map(ToString::to_string)),
        ("run", run.as_ref().map(ToString::to_string)),
        ("tool", tool.clone()),
    ];
    for (column, text) in texts {
        if let Some(text) = text {
            query.push(format_args!(" AND {column} = ")).push_bind(text);
        }
    }
    if let Some(from) = from {
        query.push(" AND at >= ").push_bind(from.as_millis());
    }
    if let Some(to) = to {
        query.push(" AND at < ").push_bind(to.as_millis());
    }
    if let Some(prefix) = id_prefix {
        query.push(" AND id >= ").push_bind(prefix.clone());
        query.push(" AND id < ").push_bind(format!("{prefix}\u{10ffff}"));
    }
    query.push(" ORDER BY at DESC, number DESC LIMIT ").push_bind(limit.map_or(-1, i64::from));
    query
}

fn decode_result_entry(row: &SqliteRow) -> Result<ResultEntry, StoreError> {
    let text = |column: &str| row.try_get::<String, _>(column).map_err(Fault::from);
    let at = Timestamp::from_millis(row.try_get("at").map_err(Fault::from)?);
    let origin = Origin::new(at, text("session")?, text("run")?, text("call_id")?, text("tool")?);
    Ok(ResultEntry::new(text("id")?, origin, read_number(row, "bytes")?))
}

/// Counts the errors that match a filter in groups.
pub(crate) async fn count(
    readers: &SqlitePool,
    filter: &ErrorFilter,
    by: CountBy,
) -> Result<Vec<ErrorCount>, StoreError> {
    let key = match by {
        CountBy::Code => "reason",
        CountBy::Day => "date(at / 1000, 'unixepoch')",
        _ => "tool",
    };
    let order = if by == CountBy::Day { "key" } else { "occurrences DESC, key" };
    let mut all = filter.clone();
    let limit = all.limit.take();
    let mut query = QueryBuilder::new(
        "SELECT key, count(*) AS errors, sum(occurrences) AS occurrences, \
         sum(chars_kept * occurrences) AS chars_kept FROM (",
    );
    let columns = format!("SELECT {key} AS key, occurrences, chars_kept FROM errors");
    choose(&mut query, &columns, &all);
    query.push(format_args!(") GROUP BY key ORDER BY {order} LIMIT "));
    query.push_bind(limit.map_or(-1, i64::from));
    let rows = query.build().fetch_all(readers).await.map_err(Fault::from)?;
    rows.iter().map(decode_error_count).collect()
}

fn decode_error_count(row: &SqliteRow) -> Result<ErrorCount, StoreError> {
    let key: String = row.try_get("key").map_err(Fault::from)?;
    let number = |column| read_number(row, column);
    Ok(ErrorCount::new(key, number("errors")?, number("occurrences")?, number("chars_kept")?))
}

fn read_number(row: &SqliteRow, column: &str) -> Result<u64, StoreError> {
    let number = row.try_get::<i64, _>(column).map_err(Fault::from)?;
    Ok(u64::try_from(number).unwrap_or(0))
}

/// Counts errors, the most characters kept first.
pub(crate) async fn stats(
    readers: &SqlitePool,
    limit: Option<u32>,
) -> Result<Vec<ErrorStats>, StoreError> {
    let rows = sqlx::query(
        "SELECT tool, session, reason, code, errors, occurrences, chars_kept FROM error_stats \
         ORDER BY chars_kept DESC, tool, session, reason, code LIMIT $1",
    )
    .bind(limit.map_or(-1, i64::from))
    .fetch_all(readers)
    .await
    .map_err(Fault::from)?;
    rows.iter().map(decode_error_stats).collect()
}

fn decode_error_stats(row: &SqliteRow) -> Result<ErrorStats, StoreError> {
    let text = |column: &str| row.try_get::<String, _>(column).map_err(Fault::from);
    let number = |column| read_number(row, column);
    let author = Some(text("code")?).filter(|code| !code.is_empty());
    let reason = known_code(&text("reason")?);
    Ok(ErrorStats::new(text("tool")?, reason, author, text("session")?.into()).counting(
        number("errors")?,
        number("occurrences")?,
        number("chars_kept")?,
    ))
}

fn decode_error_record(row: &SqliteRow) -> Result<ErrorRecord, StoreError> {
    let text = |column: &str| row.try_get::<String, _>(column).map_err(Fault::from);
    let number = |column: &str| row.try_get::<i64, _>(column).map_err(Fault::from);
    let count = |column: &str| number(column).map(|number| u64::try_from(number).unwrap_or(0));
    let at = |column: &str| number(column).map(Timestamp::from_millis);
    let author: Option<String> = row.try_get("code").map_err(Fault::from)?;
    let origin =
        Origin::new(at("at")?, text("session")?, text("run")?, text("call_id")?, text("tool")?);
    let reason = known_code(&text("reason")?);
    let record =
        ErrorRecord::of_row(text("id")?, origin, reason, author, &text("summary")?, &text("raw")?);
    Ok(record.with_occurrences(count("occurrences")?, at("last_at")?, count("chars_kept")?))
}

/// Only codes of the catalogue are stored; a row with another code was edited by hand.
fn known_code(text: &str) -> Code {
    Code::new(code::find(text).map_or(code::TOOL_OTHER, |entry| entry.code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::Database;
    use crate::plan::plan;
    use sqlx::Execute;

    /// Spec: S14
    #[tokio::test]
    async fn lists_go_by_an_index() {
        let database = Database::in_memory().await.unwrap();
        let at = Timestamp::from_millis(1);
        let all = ErrorFilter::new;
        for (filter, index) in [
            (all(), "errors_by_time"),
            (all().from(at).to(at), "errors_by_time"),
            (all().tool("sql"), "errors_by_tool"),
            (all().tool("sql").from(at), "errors_by_tool"),
            (all().session("s"), "errors_by_session"),
            (all().session("s").tool("sql").to(at), "errors_by_session"),
        ] {
            let mut query = list(&filter);
            let plan = plan(&database, query.build().sql().as_str()).await.join("; ");
            assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{filter:?}: {plan}");
        }
        let mut query = list(&all().id_prefix("err_2"));
        let by_id = plan(&database, query.build().sql().as_str()).await.join("; ");
        assert!(by_id.contains("sqlite_autoindex_errors_1"), "{by_id}");
        let mut of_runs = list(&all().runs(["run_1", "run_2"]).limit(5));
        let plan_of_runs = plan(&database, of_runs.build().sql().as_str()).await.join("; ");
        assert!(plan_of_runs.contains("SEARCH refers USING PRIMARY KEY (run=?)"), "{plan_of_runs}");
        let mut of_run = list(&all().run("run").session("s").tool("sql").from(at));
        let plan = plan(&database, of_run.build().sql().as_str()).await.join("; ");
        assert!(plan.contains("SEARCH refers USING PRIMARY KEY (run=?)"), "{plan}");
        assert!(plan.contains("SEARCH errors USING INTEGER PRIMARY KEY"), "{plan}");
    }

    /// Spec: S14
    #[tokio::test]
    async fn counting_reads_no_error() {
        let database = Database::in_memory().await.unwrap();
        let sql = "SELECT tool FROM error_stats ORDER BY chars_kept DESC LIMIT 50";
        let plan = plan(&database, sql).await.join("; ");
        assert!(!plan.contains("errors"), "{plan}");
    }
}
