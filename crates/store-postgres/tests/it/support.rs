//! Databases for tests.

use backstop_store_postgres::{Database, Options};
use backstop_testkit::PostgresServer;

/// The server, or a test that is left out, which says so.
macro_rules! server {
    () => {
        match backstop_testkit::PostgresServer::shared() {
            Some(server) => server,
            None => return,
        }
    };
}
pub(crate) use server;

/// Opens a new database.
pub(crate) async fn fresh(server: &PostgresServer) -> Database {
    open(&server.database().await).await
}

/// Opens a database once more, as another process would.
pub(crate) async fn open(url: &str) -> Database {
    // Tests run side by side: few connections each.
    let options = Options::new(url).unwrap().connections(3);
    Database::connect_with(options).await.unwrap()
}
