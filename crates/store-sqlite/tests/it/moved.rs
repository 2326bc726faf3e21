//! Files that are moved or removed while a run writes.

use std::path::PathBuf;
use std::sync::Arc;

use backstop_event_log::{EventLog, Log, LogError, RunWriter, Seed};
use backstop_store_sqlite::{Database, Durability, OpenError};
use layer0::event::{Actor, EventKind, Warning};
use layer0::failure::Failure;

use crate::claims::begin;
use crate::{Folder, at, open};

async fn append(writer: &mut RunWriter) -> Result<(), LogError> {
    let kind: EventKind = Warning::new("x").into();
    writer.stage(&Seed::new("test"), at(2), Actor::Runtime, None, kind);
    writer.commit().await.map(drop)
}

fn owner_file(folder: &Folder) -> PathBuf {
    let files = std::fs::read_dir(folder.file().parent().unwrap()).unwrap();
    let mut files = files.map(|entry| entry.unwrap().path());
    files.find(|path| path.to_str().unwrap().contains("-owner-")).unwrap()
}

/// Spec: D2. What is written to a file without its name is in no record.
#[tokio::test]
async fn moved_database_takes_no_append() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut writer = begin(&log, "run_1").await;
    append(&mut writer).await.unwrap();
    let lease = Arc::clone(writer.lease().unwrap());
    assert!(lease.may_start());
    let elsewhere = folder.file().with_file_name("elsewhere.db");
    std::fs::rename(folder.file(), &elsewhere).unwrap();
    assert!(!lease.may_start(), "nothing later is acted on");
    let refused = append(&mut writer).await.unwrap_err();
    assert_eq!((refused.code(), refused.is_retryable()), ("store.lost", false));
    lease.wait_for_end().await;
    assert_eq!(lease.loss(&"run_1".into()).code(), "store.lost");
    // Refused data is not written later, nor are other runs.
    std::fs::rename(&elsewhere, folder.file()).unwrap();
    let mut other = RunWriter::new(Arc::clone(&log), "run_2".into());
    other.stage(&Seed::new("test"), at(1), Actor::Runtime, None, crate::started("s"));
    assert!(matches!(other.commit().await, Err(LogError::StoreLost(_))));
    drop((writer, other));
    database.close().await;
}

/// Spec: D2. Another file of the same name is not the one that was opened.
#[tokio::test]
async fn replaced_database_takes_no_append() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let mut writer = begin(&log, "run_1").await;
    let copy = folder.file().with_file_name("copy.db");
    std::fs::copy(folder.file(), &copy).unwrap();
    std::fs::rename(&copy, folder.file()).unwrap();
    let refused = append(&mut writer).await;
    assert!(matches!(refused, Err(LogError::StoreLost(_))), "{refused:?}");
    drop(writer);
    database.close().await;
}

/// Spec: D8. An owner without its file stops before another process takes its run.
#[tokio::test]
async fn removed_owner_file_makes_no_second_owner() {
    let folder = Folder::new();
    let one = open(&folder.file()).await;
    let log: Arc<dyn EventLog> = Arc::new(one.log());
    let mut writer = begin(&log, "run_1").await;
    let file = owner_file(&folder);
    let two = open(&folder.file()).await;
    let lease = Arc::clone(writer.lease().unwrap());
    let other = two.log();
    let refused = other.claim(&"run_1".into()).await;
    assert!(matches!(refused, Err(LogError::Claimed(_))));
    std::fs::remove_file(file).unwrap();
    assert!(!lease.may_start());
    let (run, claim) = ("run_1".into(), async {
        lease.must_stop().await;
        "stopped"
    });
    let taken = tokio::select! {
        biased;
        stopped = claim => stopped,
        _taken = other.claim(&run) => "taken",
    };
    assert_eq!(taken, "stopped");
    let _claim = other.claim(&run).await.unwrap();
    assert!(matches!(append(&mut writer).await, Err(LogError::Conflict { .. })));
    // Later claims have another owner, which is alive.
    let _writer = begin(&log, "run_2").await;
    let refused = other.claim(&"run_2".into()).await;
    assert!(matches!(refused, Err(LogError::Claimed(_))));
}

/// Spec: D2, S8. SQLite would delete the log of a database that was moved away alone, with its last events.
#[tokio::test]
async fn log_of_a_moved_file_is_kept() {
    let folder = Folder::new();
    let file = folder.file();
    let (aside, log) = (file.with_extension("aside"), file.with_extension("db-wal"));
    std::fs::write(&log, "the last events").unwrap();
    for _ in 0..2 {
        let opened = Database::open(&file, Durability::Normal).await;
        assert!(matches!(opened, Err(OpenError::LogLeft(left)) if left == log));
        assert_eq!(std::fs::read(&log).unwrap(), b"the last events");
        // An empty file is no database either.
        std::fs::write(&file, "").unwrap();
    }
    std::fs::rename(&log, &aside).unwrap();
    Database::open(&file, Durability::Normal).await.unwrap().close().await;
}
