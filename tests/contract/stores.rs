//! Every store there is, held against its contract.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use backstop::{Database, Durability};
use backstop_event_log::EventLog;
use backstop_testkit::contract::{self, Open};

/// Spec: A1, D1, D2, D3, D4, D7, D8, S11, X2, W3
#[tokio::test]
async fn the_sqlite_log_keeps_the_contract() {
    let log = async || Arc::new(Database::in_memory().await.unwrap().log()) as _;
    contract::event_log(log).check().await;
    contract::erasable_event_log(log).check().await;
    contract::approvals(log).check().await;
    contract::feed(log).check().await;
    contract::subscriptions(log).check().await;
    contract::transcripts(log).check().await;
    let keys = async || Arc::new(Database::in_memory().await.unwrap().log()) as _;
    contract::start_keys(keys).check().await;
    let folder = Arc::new(tempfile::tempdir().unwrap());
    for durability in [Durability::Normal, Durability::Full] {
        let folder = Arc::clone(&folder);
        let log = async move || place(&folder, durability)().await;
        contract::event_log(log.clone()).check().await;
        contract::erasable_event_log(log.clone()).check().await;
        contract::feed(log).check().await;
    }
    let place = async move || place(&folder, Durability::Normal);
    contract::reopened_event_log(place).check().await;
}

/// A new file, which is opened as often as asked.
fn place(folder: &tempfile::TempDir, durability: Durability) -> Open<dyn EventLog> {
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let file = folder.path().join(format!("{}.db", FILES.fetch_add(1, Ordering::Relaxed)));
    Box::new(move || {
        let file = file.clone();
        Box::pin(
            async move { Arc::new(Database::open(file, durability).await.unwrap().log()) as _ },
        )
    })
}
