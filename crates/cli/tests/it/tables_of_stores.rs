//! Readers of all tables of a store.

use sqlx::{AssertSqlSafe, Connection as _, Row as _};

use crate::bench::Bench;
use crate::postgres::database;

/// Returns the URL of a SQLite store, and that of a new PostgreSQL database if there is a server.
pub(crate) fn stores() -> Vec<String> {
    let mut stores = vec!["sqlite:x.db".to_owned()];
    stores.extend(database());
    stores
}

/// Returns each value of each table in the catalogue of the store, with the name of its table.
pub(crate) fn values(store: &str, bench: &Bench) -> Vec<(String, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match store.strip_prefix("sqlite:") {
            Some(file) => sqlite_values(&bench.path().join(file)).await,
            None => postgres_values(store).await,
        }
    })
}

async fn sqlite_values(file: &std::path::Path) -> Vec<(String, String)> {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
    let mut connection = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
    let tables: Vec<String> =
        sqlx::query_scalar("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
            .fetch_all(&mut connection)
            .await
            .unwrap();
    let mut values = Vec::new();
    for table in tables {
        let columns = format!("SELECT name FROM pragma_table_info('{table}')");
        let columns: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(columns)).fetch_all(&mut connection).await.unwrap();
        for column in columns {
            let all = format!("SELECT CAST(CAST(\"{column}\" AS BLOB) AS BLOB) FROM \"{table}\"");
            let rows = sqlx::query(AssertSqlSafe(all)).fetch_all(&mut connection).await.unwrap();
            for row in rows {
                let bytes: Option<Vec<u8>> = row.get(0);
                let text = String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
                values.push((format!("{table}.{column}"), text));
            }
        }
    }
    connection.close().await.unwrap();
    values
}

async fn postgres_values(url: &str) -> Vec<(String, String)> {
    let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT format('%I.%I', nspname, relname) FROM pg_class \
         JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE relkind IN ('r', 'p', 'm') \
         AND nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    let mut values = Vec::new();
    for table in tables {
        let all = format!("SELECT row_to_json(all_rows)::text FROM {table} AS all_rows");
        let rows: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(all)).fetch_all(&mut connection).await.unwrap();
        values.extend(rows.into_iter().map(|row| (table.clone(), row)));
    }
    connection.close().await.unwrap();
    values
}
