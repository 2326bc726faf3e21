//! Lists of runs, by an index if there is one.

use backstop_event_log::{AttemptFilter, FailedAttempts, LogError, RunFilter};
use layer0::id::RunId;
use layer0::{Code, Timestamp, code};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row};

use crate::fault::Fault;
use crate::pool::ConnectionPool;
use crate::rows::to_u64;
use crate::text::{encode_text, read};

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// Pattern of the ids of subscriptions' segments.
pub(crate) const SEGMENTS: &str = "sub\\_%";

/// Returns the rows of the runs that match a filter, newest first.
pub(crate) async fn list(
    pool: &ConnectionPool,
    filter: &RunFilter,
) -> Result<Vec<PgRow>, LogError> {
    Ok(query(filter).build().fetch_all(&mut *pool.lend().await?).await.map_err(Fault::from)?)
}

/// Counts failed model attempts.
pub(crate) async fn failed_attempts(
    pool: &ConnectionPool,
    filter: &AttemptFilter,
) -> Result<Vec<FailedAttempts>, LogError> {
    let AttemptFilter { runs, code, from, to, .. } = filter;
    let mut query = QueryBuilder::new(format!(
        "SELECT at / {DAY_MS} AS day, provider, code, count(*) AS attempts \
         FROM backstop.attempts WHERE true"
    ));
    if let Some(from) = from {
        query.push(" AND at >= ").push_bind(from.as_millis());
    }
    if let Some(to) = to {
        query.push(" AND at < ").push_bind(to.as_millis());
    }
    if let Some(code) = code {
        of_code(&mut query, "code", code);
    }
    if let Some(runs) = runs {
        query.push(" AND run_id IN (SELECT id FROM backstop.runs WHERE run = ANY(");
        query.push_bind(names(runs)).push("))");
    }
    query.push(" GROUP BY day, provider, code ORDER BY day, provider COLLATE \"C\", code");
    let rows = query.build().fetch_all(&mut *pool.lend().await?).await.map_err(Fault::from)?;
    let counted = |row: &PgRow| {
        let text = |column| row.try_get::<String, _>(column).map_err(Fault::from);
        let number = |column| row.try_get::<i64, _>(column).map_err(Fault::from);
        // Only codes of the catalogue are recorded.
        let Some(entry) = code::find(&text("code")?) else { return Ok(None) };
        let day = Timestamp::from_millis(number("day")?.saturating_mul(DAY_MS));
        let attempts = to_u64(number("attempts")?);
        let provider = read(text("provider")?);
        Ok(Some(FailedAttempts::new(day, provider, Code::new(entry.code), attempts)))
    };
    rows.iter().filter_map(|row| counted(row).transpose()).collect()
}

/// Builds the query for the newest matching runs.
fn query(filter: &RunFilter) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::new("SELECT runs.* FROM backstop.runs AS runs WHERE true");
    for (key, value) in &filter.labels {
        query.push(" AND id IN (SELECT run_id FROM backstop.labels WHERE key = ");
        query.push_bind(encode_text(key).into_owned()).push(" AND value = ");
        query.push_bind(encode_text(value).into_owned()).push(")");
    }
    if let Some(session) = &filter.session {
        query.push(" AND session = ").push_bind(encode_text(session.as_str()).into_owned());
    }
    if let Some(agent) = &filter.agent {
        query.push(" AND agent = ").push_bind(encode_text(agent).into_owned());
    }
    if let Some(reason) = &filter.reason {
        of_code(&mut query, "reason", reason);
    }
    if !filter.states.is_empty() {
        let states: Vec<&str> = filter.states.iter().map(|state| state.as_str()).collect();
        query.push(" AND state = ANY(").push_bind(states).push(")");
    }
    if let Some(from) = filter.from {
        query.push(" AND started_at >= ").push_bind(from.as_millis());
    }
    if let Some(to) = filter.to {
        query.push(" AND started_at < ").push_bind(to.as_millis());
    }
    if let Some(prefix) = &filter.id_prefix {
        between(&mut query, "run", &encode_text(prefix));
    }
    if filter.roots {
        query.push(" AND parent IS NULL");
    }
    query.push(match filter.segments {
        true => " AND run LIKE ",
        false => " AND run NOT LIKE ",
    });
    query.push_bind(SEGMENTS);
    query.push(" ORDER BY started_at DESC, id DESC LIMIT ");
    query.push_bind(filter.limit.map(i64::from));
    query
}

/// Adds the condition for a code or a family of codes.
pub(crate) fn of_code(query: &mut QueryBuilder<Postgres>, column: &str, wanted: &str) {
    match wanted.strip_suffix('*') {
        Some(family) => between(query, column, family),
        None => {
            query.push(format_args!(" AND {column} = ")).push_bind(wanted.to_owned());
        }
    }
}

/// Returns the stored ids of runs, for one parameter.
pub(crate) fn names(runs: &[RunId]) -> Vec<String> {
    runs.iter().map(|run| encode_text(run.as_str()).into_owned()).collect()
}

/// Adds the condition for a prefix; no character sorts after the last code point of Unicode.
pub(crate) fn between(query: &mut QueryBuilder<Postgres>, column: &str, prefix: &str) {
    query.push(format_args!(" AND {column} >= ")).push_bind(prefix.to_owned());
    query.push(format_args!(" AND {column} < ")).push_bind(format!("{prefix}\u{10ffff}"));
}
