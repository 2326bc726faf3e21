//! Writes that share a commit, and statements over several rows.

use std::sync::Arc;

use backstop_error_store::ErrorStore;
use backstop_event_log::{Claim, EventLog, LogError, RunWriter, Seed, read_events};
use backstop_store_sqlite::Database;
use futures_util::future::join_all;
use layer0::event::Actor;

use crate::{Folder, at, error, open, started, write_run};

/// Spec: S12
#[tokio::test]
async fn shared_commit_writes_as_if_alone() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let store = database.errors();
    let before = database.commits();
    let texts = ["a", "b", "a", "c", "a"];
    let stored = join_all(texts.map(|text| store.store(error("s", "c", text)))).await;
    let stored: Vec<_> = stored.into_iter().map(Result::unwrap).collect();
    assert!(database.commits() - before <= 2, "nothing is pruned");
    let occurrences: Vec<u64> = stored.iter().map(|stored| stored.occurrences).collect();
    assert_eq!(occurrences, [1, 1, 2, 1, 3]);
    assert_eq!((&stored[0].id, &stored[0].id), (&stored[2].id, &stored[4].id));

    let log: Arc<dyn EventLog> = Arc::new(database.log());
    write_run(&log, "run_1", "s", 2).await;
    let summary = log.summary(&"run_1".into()).await.unwrap().unwrap();
    let resume = |_| {
        let same = Claim::new(Claim::FIRST, ());
        RunWriter::resume(Arc::clone(&log), summary.clone(), same)
    };
    let mut writers = [0; 3].map(resume);
    for writer in &mut writers {
        writer.stage(&Seed::new("test"), at(3), Actor::Runtime, None, started("s"));
    }
    let written = join_all(writers.iter_mut().map(RunWriter::commit)).await;
    let conflicts = written
        .iter()
        .filter(|written| matches!(written, Err(LogError::Conflict { seq: 3, .. })))
        .count();
    assert_eq!((written.iter().filter(|written| written.is_ok()).count(), conflicts), (1, 2));
    assert_eq!(read_events(&*log, &"run_1".into()).await.unwrap().1.len(), 3);
}

/// Statements are prepared for powers of two; values of an earlier execution do not remain.
#[tokio::test]
async fn appends_of_any_size_read_back() {
    let database = Database::in_memory().await.unwrap();
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut writer = RunWriter::new(Arc::clone(&log), "run_1".into());
    let mut appended = Vec::new();
    for size in [1, 64, 33, 2, 3, 256, 257, 1_000, 5] {
        for _ in 0..size {
            writer.stage(&Seed::new("test"), at(size), Actor::Runtime, None, started("s"));
        }
        appended.extend(writer.commit().await.unwrap());
        assert_eq!(read_events(&*log, &"run_1".into()).await.unwrap().1, appended);
    }
    let tail = log.records(&"run_1".into(), 1_600).await.unwrap();
    assert_eq!(tail.len(), 22);
    assert!(log.records(&"run_1".into(), 1_622).await.unwrap().is_empty());
}
