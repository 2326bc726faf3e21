//! The list of scopes.

use crate::server_time::given_ms;

/// Lists at most `$3` scopes after `$1` that have a value at time `$2`: a loose index scan, with one step for each
/// scope, however many values it has.
pub(crate) const SCOPES: &str = concat!(
    "WITH RECURSIVE next (scope) AS (SELECT (SELECT min(scope) FROM backstop.state WHERE scope > $1) \
     UNION ALL SELECT (SELECT min(scope) FROM backstop.state AS state WHERE state.scope > next.scope) \
     FROM next WHERE next.scope IS NOT NULL) \
     SELECT scope FROM next WHERE scope IS NOT NULL AND EXISTS (SELECT 1 FROM backstop.state AS state \
     WHERE state.scope = next.scope AND (expires_at IS NULL OR expires_at > ",
    given_ms!("$2"),
    ")) LIMIT $3"
);

#[cfg(test)]
mod tests {
    use backstop_testkit::PostgresServer;
    use serde_json::Value;
    use sqlx::{AssertSqlSafe, Row};

    use super::*;
    use crate::database::Database;

    /// Returns the number of rows that the steps of a plan read from tables.
    fn count_rows(step: &Value) -> f64 {
        let number = |name: &str| step[name].as_f64().unwrap_or_default();
        let own = match step["Relation Name"].is_string() {
            true => {
                let filtered = number("Rows Removed by Filter");
                (number("Actual Rows") + filtered) * number("Actual Loops")
            }
            false => 0.0,
        };
        own + step["Plans"].as_array().into_iter().flatten().map(count_rows).sum::<f64>()
    }

    /// Spec: K1. 30 scopes of 100 values each.
    #[tokio::test(flavor = "multi_thread")]
    async fn scopes_are_listed_in_steps() {
        let Some(server) = PostgresServer::shared() else { return };
        let database = Database::connect(&server.database().await).await.unwrap();
        let mut lent = database.pool().lend().await.unwrap();
        let fill = "INSERT INTO backstop.state (scope, key, version, at, value, words) \
            SELECT 'agent:' || n / 100, 'k' || n, n, 0, '1', '{}' FROM generate_series(0, 2999) AS n; \
            ANALYZE backstop.state";
        sqlx::raw_sql(fill).execute(&mut *lent).await.unwrap();
        let statement = SCOPES.replace("$1", "''").replace("$2", "null").replace("$3", "1000");
        let statement = AssertSqlSafe(format!("EXPLAIN (ANALYZE, FORMAT JSON) {statement}"));
        let row = sqlx::raw_sql(statement).fetch_one(&mut *lent).await.unwrap();
        let plan: Value = serde_json::from_str(row.get_unchecked(0)).unwrap();
        let rows = count_rows(&plan[0]["Plan"]);
        assert!((30.0..100.0).contains(&rows), "{rows} rows are read: {plan:#}");
    }
}
