//! SQLite's query plans, for tests.

use sqlx::Row;

use crate::database::Database;

/// Returns the steps of a statement's plan.
pub(crate) async fn plan(database: &Database, statement: &str) -> Vec<String> {
    let sql = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
    let rows = sqlx::query(sql).fetch_all(database.readers()).await.unwrap();
    rows.iter().map(|row| row.get("detail")).collect()
}
