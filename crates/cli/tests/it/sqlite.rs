//! Changes to a store that bypass the command.

use std::path::Path;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, SqliteConnection};
use tokio::runtime::Runtime;

/// Runs a statement on a database.
pub(crate) fn execute(file: &Path, statement: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
        let mut connection = options.connect().await.unwrap();
        connection.execute(AssertSqlSafe(statement.to_owned())).await.unwrap();
        connection.close().await.unwrap();
    });
}

/// A transaction, which holds until it is dropped.
pub(crate) struct OpenTransaction {
    _connection: SqliteConnection,
    _runtime: Runtime,
}

/// Keeps all others from writing to a database.
pub(crate) fn lock(file: &Path) -> OpenTransaction {
    begin(file, "BEGIN IMMEDIATE")
}

/// Keeps all others from emptying the log of a database at their end.
pub(crate) fn read(file: &Path) -> OpenTransaction {
    begin(file, "BEGIN; SELECT count(*) FROM runs")
}

fn begin(file: &Path, statements: &'static str) -> OpenTransaction {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let connection = runtime.block_on(async {
        let mut connection = SqliteConnectOptions::new().filename(file).connect().await.unwrap();
        connection.execute(statements).await.unwrap();
        connection
    });
    OpenTransaction { _connection: connection, _runtime: runtime }
}

/// Returns the number of the first page of a table.
pub(crate) fn root_page(file: &Path, table: &str) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let page: i64 = runtime.block_on(async {
        let mut connection = SqliteConnectOptions::new().filename(file).connect().await.unwrap();
        let page = sqlx::query_scalar("SELECT rootpage FROM sqlite_schema WHERE name = ?");
        let page = page.bind(table).fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        page
    });
    page.try_into().unwrap()
}
