//! Lists of runs, by an index if there is one.

use backstop_event_log::{AttemptFilter, FailedAttempts, LogError, RunFilter};
use layer0::id::RunId;
use layer0::{Code, Timestamp, code};
use serde_json::json;
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{QueryBuilder, Row, Sqlite};

use crate::fault::{Fault, OlderSchema};
use crate::rows::to_u64;

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// The migration that added an index of labels.
const LABELS_SINCE: i64 = 10;

/// All columns: a file of an older version, which is not migrated for reading, lacks some of them.
const COLUMNS: &str = "SELECT runs.* FROM runs WHERE TRUE";

/// Returns the rows of the runs that match a filter, newest first.
pub(crate) async fn list(
    readers: &SqlitePool,
    filter: &RunFilter,
) -> Result<Vec<SqliteRow>, LogError> {
    let of_row = match filter.agent.is_none() && filter.reason.is_none() {
        true => OfRow::COLUMNS,
        // A file of an older version, which is not migrated for reading, lacks these columns.
        false => match has_columns(readers).await? {
            true => OfRow::COLUMNS,
            false => OfRow::SUMMARY,
        },
    };
    if !filter.labels.is_empty() {
        check_labels(readers).await?;
    }
    let mut query = query(filter, of_row);
    Ok(query.build().fetch_all(readers).await.map_err(Fault::from)?)
}

/// The condition of an index of migration 10: failed model attempts.
const FAILED: &str = "type = 'model.attempted' AND \
    CASE WHEN json_valid(data) THEN json_extract(data, '$.code') END IS NOT NULL";

/// Counts failed model attempts.
pub(crate) async fn failed_attempts(
    readers: &SqlitePool,
    filter: &AttemptFilter,
) -> Result<Vec<FailedAttempts>, LogError> {
    let rows = attempts(filter).build().fetch_all(readers).await.map_err(Fault::from)?;
    let counted = |row: &SqliteRow| {
        let text = |column| row.try_get::<String, _>(column).map_err(Fault::from);
        let number = |column| row.try_get::<i64, _>(column).map_err(Fault::from);
        // Only codes of the catalogue are recorded.
        let Some(entry) = code::find(&text("code")?) else { return Ok(None) };
        let day = Timestamp::from_millis(number("day")?.saturating_mul(DAY_MS));
        let attempts = to_u64(number("attempts")?);
        Ok(Some(FailedAttempts::new(day, text("provider")?, Code::new(entry.code), attempts)))
    };
    rows.iter().filter_map(|row| counted(row).transpose()).collect()
}

fn attempts(filter: &AttemptFilter) -> QueryBuilder<Sqlite> {
    let AttemptFilter { runs, code, from, to, .. } = filter;
    let of_row = "json_extract(data, '$.code')";
    let mut query = QueryBuilder::new(format!(
        "SELECT at / {DAY_MS} AS day, coalesce(json_extract(data, '$.provider'), '') AS provider, \
         {of_row} AS code, count(*) AS attempts FROM events WHERE {FAILED}"
    ));
    if let Some(from) = from {
        query.push(" AND at >= ").push_bind(from.as_millis());
    }
    if let Some(to) = to {
        query.push(" AND at < ").push_bind(to.as_millis());
    }
    if let Some(code) = code {
        of_code(&mut query, of_row, code);
    }
    if let Some(runs) = runs {
        // A `+` prevents a read of all events of a run.
        query.push(" AND +run_id IN (SELECT id FROM runs WHERE run IN ");
        push_runs(&mut query, runs);
        query.push(")");
    }
    query.push(" GROUP BY day, provider, code ORDER BY day, provider, code");
    query
}

/// Refuses a filter by labels if the file has no labels.
async fn check_labels(readers: &SqlitePool) -> Result<(), LogError> {
    let found: i64 =
        sqlx::query_scalar("PRAGMA user_version").fetch_one(readers).await.map_err(Fault::from)?;
    if found >= LABELS_SINCE {
        return Ok(());
    }
    let older = OlderSchema { what: "labels", needed: LABELS_SINCE, found };
    Err(LogError::Failed(older.into()))
}

async fn has_columns(readers: &SqlitePool) -> Result<bool, LogError> {
    let found: Option<i64> =
        sqlx::query_scalar("SELECT 1 FROM pragma_table_info('runs') WHERE name = 'reason'")
            .fetch_optional(readers)
            .await
            .map_err(Fault::from)?;
    Ok(found.is_some())
}

/// The places of a run's agent and reason in its row.
#[derive(Clone, Copy)]
struct OfRow {
    agent: &'static str,
    reason: &'static str,
}

impl OfRow {
    const COLUMNS: Self = Self { agent: "agent", reason: "reason" };
    const SUMMARY: Self = Self {
        agent: "CASE WHEN json_valid(summary) THEN json_extract(summary, '$.agent') END",
        reason: "CASE WHEN json_valid(summary) THEN json_extract(summary, '$.reason') END",
    };
}

/// Builds the query for the newest matching runs. A `+` prevents the order from choosing the index.
fn query(filter: &RunFilter, of_row: OfRow) -> QueryBuilder<Sqlite> {
    let mut labels = filter.labels.iter();
    let mut query = match labels.next() {
        Some((key, value)) => {
            let mut query = QueryBuilder::new("SELECT runs.* FROM labels CROSS JOIN runs ");
            query.push("ON runs.id = labels.run_id WHERE key = ").push_bind(key.clone());
            query.push(" AND value = ").push_bind(value.clone());
            query
        }
        None => QueryBuilder::new(COLUMNS),
    };
    for (key, value) in labels {
        query.push(
            " AND EXISTS (SELECT 1 FROM labels AS also WHERE also.run_id = runs.id AND also.key = ",
        );
        query.push_bind(key.clone()).push(" AND also.value = ").push_bind(value.clone());
        query.push(" AND also.started_at = runs.started_at)");
    }
    if let Some(session) = &filter.session {
        query.push(" AND session = ").push_bind(session.to_string());
    }
    if let Some(agent) = &filter.agent {
        query.push(format_args!(" AND {} = ", of_row.agent)).push_bind(agent.clone());
    }
    if let Some(reason) = &filter.reason {
        of_code(&mut query, of_row.reason, reason);
    }
    if !filter.states.is_empty() {
        query.push(" AND state IN (");
        let mut states = query.separated(", ");
        for state in &filter.states {
            states.push_bind(state.as_str());
        }
        query.push(")");
    }
    if let Some(from) = filter.from {
        query.push(" AND runs.started_at >= ").push_bind(from.as_millis());
    }
    if let Some(to) = filter.to {
        query.push(" AND runs.started_at < ").push_bind(to.as_millis());
    }
    if let Some(prefix) = &filter.id_prefix {
        between(&mut query, "run", prefix);
    }
    if filter.roots {
        query.push(" AND parent IS NULL");
    }
    // A `+` prevents a condition that holds for almost all ids from choosing the index.
    query.push(match filter.segments {
        true => " AND runs.run GLOB 'sub_*'",
        false => " AND +runs.run NOT GLOB 'sub_*'",
    });
    query.push(match (filter.labels.is_empty(), &filter.id_prefix) {
        (false, _) => " ORDER BY labels.started_at DESC, labels.run_id DESC LIMIT ",
        (true, Some(_)) => " ORDER BY +started_at DESC, id DESC LIMIT ",
        (true, None) => " ORDER BY started_at DESC, id DESC LIMIT ",
    });
    query.push_bind(filter.limit.map_or(-1, i64::from));
    query
}

/// Adds the condition for a code or a family of codes.
pub(crate) fn of_code(query: &mut QueryBuilder<Sqlite>, column: &str, wanted: &str) {
    match wanted.strip_suffix('*') {
        Some(family) => between(query, column, family),
        None => {
            query.push(format_args!(" AND {column} = ")).push_bind(wanted.to_owned());
        }
    }
}

/// Adds runs as one parameter, since there may be more runs than parameters are allowed.
pub(crate) fn push_runs(query: &mut QueryBuilder<Sqlite>, runs: &[RunId]) {
    let runs: Vec<&str> = runs.iter().map(RunId::as_str).collect();
    query.push("(SELECT value FROM json_each(").push_bind(json!(runs).to_string()).push("))");
}

/// Adds the condition for a prefix; no character sorts after the last code point of Unicode.
fn between(query: &mut QueryBuilder<Sqlite>, column: &str, prefix: &str) {
    query.push(format_args!(" AND {column} >= ")).push_bind(prefix.to_owned());
    query.push(format_args!(" AND {column} < ")).push_bind(format!("{prefix}\u{10ffff}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::Database;
    use crate::plan::plan;
    use backstop_event_log::RunState;
    use sqlx::Execute;

    #[tokio::test]
    async fn failed_attempts_are_counted_by_an_index() {
        let database = Database::in_memory().await.unwrap();
        let all = AttemptFilter::new;
        for filter in [all(), all().from(Timestamp::from_millis(1)), all().runs(["run_1"])] {
            let plan = plan(&database, attempts(&filter).build().sql().as_str()).await.join("; ");
            assert!(plan.contains("events_failed"), "{plan}");
        }
    }

    /// Spec: D9
    #[tokio::test]
    async fn runs_are_listed_by_an_index() {
        let database = Database::in_memory().await.unwrap();
        let (all, at) = (RunFilter::new, Timestamp::from_millis(1));
        for (filter, index) in [
            (all(), "runs_by_start"),
            (all().from(at).to(at), "runs_by_start"),
            (all().roots(), "runs_by_start"),
            (all().session("s"), "runs_by_session"),
            (all().agent("a"), "runs_by_agent"),
            (all().agent("a").from(at), "runs_by_agent"),
            (all().state(RunState::Failed), "runs_by_state"),
            (all().state(RunState::Failed).from(at), "runs_by_state"),
            (all().reason("tool.other"), "runs_by_reason"),
            (all().reason("provider.*"), "runs_by_reason"),
            (all().label("k", "v").label("l", "v"), "labels USING PRIMARY KEY"),
            (all().id_prefix("run_0"), "sqlite_autoindex_runs_1"),
        ] {
            let plan = plan(&database, query(&filter, OfRow::COLUMNS).build().sql().as_str())
                .await
                .join("; ");
            let sorts = filter.id_prefix.is_some() || filter.family().is_some();
            assert!(plan.contains(index), "{filter:?}: {plan}");
            assert!(sorts || !plan.contains("TEMP B-TREE"), "{filter:?}: {plan}");
        }
    }
}
