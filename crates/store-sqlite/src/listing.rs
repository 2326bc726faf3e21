//! Finding, listing and counting what is stored, each by an index.

use error_store::{ErrorFilter, ErrorRecord, ErrorStats, Lookup, Origin, StoreError};
use layer0::id::{ErrorId, SessionId};
use layer0::{Code, Timestamp, code};
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{QueryBuilder, Row, Sqlite};

use crate::fault::Fault;

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
    match row.as_ref().map(record_of).transpose()? {
        Some(record) if session.is_none_or(|session| session == record.session()) => {
            Ok(Lookup::Found(record))
        }
        Some(_) => Ok(Lookup::Missing),
        None => gone(readers, session, id.as_str()).await,
    }
}

/// Says whether an id that is not there was taken away.
pub(crate) async fn gone<T>(
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
    rows.iter().map(record_of).collect()
}

/// Asks an index for the newest that fit: of a run, that of its references. A `+` keeps a tool from being
/// looked up instead of a session.
fn list(filter: &ErrorFilter) -> QueryBuilder<Sqlite> {
    let ErrorFilter { session, run, tool, from, to, limit, .. } = filter;
    let mut query = QueryBuilder::new(COLUMNS);
    match run {
        Some(run) => query
            .push(" WHERE number IN (SELECT number FROM refers WHERE number IS NOT NULL AND run = ")
            .push_bind(run.to_string()),
        None => query.push(" WHERE TRUE"),
    };
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
    query.push(" ORDER BY at DESC, number DESC LIMIT ").push_bind(limit.map_or(-1, i64::from));
    if run.is_some() {
        query.push(") ORDER BY +at DESC, number DESC");
    }
    query
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
    rows.iter().map(stats_of).collect()
}

fn stats_of(row: &SqliteRow) -> Result<ErrorStats, StoreError> {
    let text = |column: &str| row.try_get::<String, _>(column).map_err(Fault::from);
    let number = |column: &str| {
        let number = row.try_get::<i64, _>(column).map_err(Fault::from)?;
        Ok::<_, StoreError>(u64::try_from(number).unwrap_or(0))
    };
    let author = Some(text("code")?).filter(|code| !code.is_empty());
    let reason = known_code(&text("reason")?);
    Ok(ErrorStats::new(text("tool")?, reason, author, text("session")?.into()).counting(
        number("errors")?,
        number("occurrences")?,
        number("chars_kept")?,
    ))
}

fn record_of(row: &SqliteRow) -> Result<ErrorRecord, StoreError> {
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
    Ok(record.seen(count("occurrences")?, at("last_at")?, count("chars_kept")?))
}

/// Only codes of the catalogue are stored; a row with another one was changed by hand.
fn known_code(text: &str) -> Code {
    Code::new(code::find(text).map_or(code::TOOL_OTHER, |entry| entry.code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::Database;
    use sqlx::Execute;

    async fn plan(database: &Database, query: &str) -> String {
        let query = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {query}"));
        let rows = sqlx::query(query).fetch_all(database.readers()).await.unwrap();
        let lines: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
        lines.join("; ")
    }

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
            let plan = plan(&database, query.build().sql().as_str()).await;
            assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{filter:?}: {plan}");
        }
        let mut of_run = list(&all().run("run").session("s").tool("sql").from(at));
        let plan = plan(&database, of_run.build().sql().as_str()).await;
        assert!(plan.contains("SEARCH refers USING PRIMARY KEY (run=?)"), "{plan}");
        assert!(plan.contains("SEARCH errors USING INTEGER PRIMARY KEY"), "{plan}");
    }

    /// Spec: S14
    #[tokio::test]
    async fn counting_reads_no_error() {
        let database = Database::in_memory().await.unwrap();
        let sql = "SELECT tool FROM error_stats ORDER BY chars_kept DESC LIMIT 50";
        let plan = plan(&database, sql).await;
        assert!(!plan.contains("errors"), "{plan}");
    }
}
