//! A disk that is full.

use std::sync::Arc;

use backstop_error_store::{ErrorFilter, ErrorStore, StoreError};
use backstop_event_log::{EventLog, LogError, verify};
use backstop_testkit::PostgresServer;
use layer0::StateStore;
use layer0::event::{EventKind, Warning};
use layer0::failure::Failure;
use layer0::state::{Scope, StateWrite};
use sqlx::{Connection, Executor};

use crate::support::{append, begin, connection, error, noise, open, resume, state};

/// How many bytes find no room on the disk.
const LARGE: usize = 256 * 1024;

fn large() -> EventKind {
    Warning::new(noise(LARGE)).into()
}

/// Spec: S6, D1, J2. What finds no room fails as such, is not half there, and finds some later.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_loses_nothing() {
    let Some(server) = PostgresServer::with_small_disk(32).await else { return };
    server.execute("CREATE DATABASE little TABLESPACE small").await;
    let url = server.url_of("little");
    let database = open(&url).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut writer = begin(&log, "run_1", "s").await;
    append(&mut writer, large()).await.unwrap();
    let mut other = connection(&url).await;
    other.execute("CREATE TABLE filler (n bigint)").await.unwrap();
    // What could not be filled stays in the file of the table.
    let filled = other.execute("INSERT INTO filler SELECT generate_series(1, 10000000)").await;
    assert!(filled.unwrap_err().to_string().contains("No space left"));

    let refused = append(&mut writer, large()).await.unwrap_err();
    assert!(matches!(refused, LogError::Full(_)), "{refused:?}");
    assert_eq!((refused.code(), refused.is_retryable()), ("store.full", false));
    let stored = error("s", "run_1", &noise(LARGE));
    let refused = database.errors().store(stored.clone()).await.unwrap_err();
    assert!(matches!(refused, StoreError::Full(_)), "{refused:?}");
    let write = |value: String| StateWrite::new(Scope::Global, "k", serde_json::json!(value));
    let refused = state(&database).write(write(noise(LARGE))).await.unwrap_err();
    assert_eq!(refused.code(), "state.write_failed");
    let records = log.records(&"run_1".into(), 1).await.unwrap();
    let summary = log.summary(&"run_1".into()).await.unwrap().unwrap();
    assert_eq!((records.len(), summary.last_seq), (2, 2));
    verify(&records, &summary, None).unwrap();
    assert!(database.errors().list(ErrorFilter::new()).await.unwrap().is_empty());
    assert!(state(&database).read(&Scope::Global, "k").await.unwrap().is_none());

    other.execute("DROP TABLE filler").await.unwrap();
    other.execute("CHECKPOINT").await.unwrap();
    drop(writer);
    let mut writer = resume(&log, "run_1").await;
    assert_eq!(append(&mut writer, large()).await.unwrap(), 3);
    database.errors().store(stored).await.unwrap();
    state(&database).write(write(noise(LARGE))).await.unwrap();
    database.close().await;
    other.close().await.unwrap();
}
