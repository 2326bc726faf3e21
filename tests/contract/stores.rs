//! Every event log there is, held against the contract.

use std::sync::Arc;

use backstop::{Database, Durability, EventLog, MemoryLog};
use testkit::event_log_conformance;

/// Spec: D1, D2, D4, D8
#[tokio::test]
async fn the_memory_log_keeps_the_contract() {
    event_log_conformance(Arc::new(MemoryLog::new())).await;
}

/// Spec: D1, D2, D4, D8, S11
#[tokio::test]
async fn the_sqlite_log_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    for durability in [Durability::Normal, Durability::Full] {
        let path = folder.path().join(format!("{durability:?}.db"));
        let database = Database::open(path, durability).await.unwrap();
        event_log_conformance(Arc::new(database.log()) as Arc<dyn EventLog>).await;
        database.close().await;
    }
    let database = Database::in_memory().await.unwrap();
    event_log_conformance(Arc::new(database.log())).await;
    database.close().await;
}
