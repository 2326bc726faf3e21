//! A file that is restored without events that it had acknowledged.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{Erasures, EventLog, Log, LogError, LostTails, RunWriter, Seed};
use backstop_store_sqlite::Database;
use layer0::event::{Actor, EventKind, LostTail, RunResumed, Warning};
use layer0::failure::Failure;
use layer0::id::RunId;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use crate::claims::begin;
use crate::retention::finished;
use crate::{Folder, at, open};

/// A copy of a database, as in a backup.
struct Backup(PathBuf);

impl Backup {
    async fn take(file: &Path, name: &str) -> Self {
        let copy = file.with_file_name(name);
        let mut connection = connection(file).await;
        sqlx::query("VACUUM INTO $1")
            .bind(copy.to_str().unwrap())
            .execute(&mut connection)
            .await
            .unwrap();
        connection.close().await.unwrap();
        Self(copy)
    }

    /// Writes the content of the copy back into the file.
    async fn restore(&self, file: &Path) {
        let mut connection = connection(file).await;
        sqlx::query("ATTACH $1 AS old")
            .bind(self.0.to_str().unwrap())
            .execute(&mut connection)
            .await
            .unwrap();
        sqlx::raw_sql(
            "BEGIN IMMEDIATE; DELETE FROM main.events; DELETE FROM main.runs; \
             INSERT INTO main.runs SELECT * FROM old.runs; \
             INSERT INTO main.events SELECT * FROM old.events; \
             UPDATE main.runs SET owner = NULL; COMMIT",
        )
        .execute(&mut connection)
        .await
        .unwrap();
        connection.close().await.unwrap();
    }
}

async fn connection(file: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(file).connect().await.unwrap()
}

fn log_of(database: &Database) -> Arc<dyn EventLog> {
    Arc::new(database.log())
}

async fn append(writer: &mut RunWriter, kind: EventKind) -> Result<(), LogError> {
    writer.stage(&Seed::new("test"), at(2), Actor::Runtime, None, kind);
    writer.commit().await.map(drop)
}

async fn note(writer: &mut RunWriter, text: &str) {
    append(writer, Warning::new(text).into()).await.unwrap();
}

async fn take(database: &Database) -> Result<RunWriter, LogError> {
    let (log, run) = (log_of(database), RunId::from("run_1"));
    let claim = loop {
        match log.claim(&run).await {
            Err(LogError::Claimed(_)) => SystemClock.sleep(Duration::from_millis(20)).await,
            claim => break claim?,
        }
    };
    let summary = log.summary(&run).await?.ok_or_else(|| LogError::NotFound(run.clone()))?;
    Ok(RunWriter::resume(log, summary, claim))
}

/// A run of four events that lost two, and two handles of its file.
async fn set_back(folder: &Folder) -> (Database, Database) {
    let (one, two) = (open(&folder.file()).await, open(&folder.file()).await);
    let mut writer = begin(&log_of(&one), "run_1").await;
    note(&mut writer, "kept").await;
    let backup = Backup::take(&folder.file(), "backup.db").await;
    note(&mut writer, "lost").await;
    note(&mut writer, "lost too").await;
    drop(writer);
    drop(take(&one).await.unwrap());
    backup.restore(&folder.file()).await;
    (one, two)
}

/// Spec: J2
#[tokio::test]
async fn lost_tail_is_refused_by_every_process() {
    let folder = Folder::new();
    let (one, two) = set_back(&folder).await;
    for database in [&one, &two] {
        let error = take(database).await.unwrap_err();
        assert!(matches!(error, LogError::LostTail { seq: 4, .. }), "{error:?}");
        assert_eq!((error.code(), error.is_retryable()), ("log.lost_tail", false));
    }
    let reader = Database::open_read_only(folder.file()).await.unwrap();
    let marked = reader.log().lost_tails().await.unwrap();
    assert_eq!((marked[0].run.as_str(), marked[0].tail.seq), ("run_1", 4));
}

/// Spec: J2. A writer that has the run is refused as well, and so is what comes after it.
#[tokio::test]
async fn living_writer_hears_of_its_lost_tail() {
    let folder = Folder::new();
    let (one, two) = (open(&folder.file()).await, open(&folder.file()).await);
    let mut writer = begin(&log_of(&one), "run_1").await;
    let backup = Backup::take(&folder.file(), "backup.db").await;
    note(&mut writer, "lost").await;
    backup.restore(&folder.file()).await;
    let error = append(&mut writer, Warning::new("more").into()).await.unwrap_err();
    assert!(matches!(error, LogError::LostTail { seq: 2, .. }), "{error:?}");
    drop(writer);
    assert!(matches!(take(&two).await, Err(LogError::LostTail { seq: 2, .. })));
}

/// Spec: J2. Another event at the seq of the lost one is no tail either.
#[tokio::test]
async fn other_tail_is_refused() {
    let folder = Folder::new();
    let (one, two) = set_back(&folder).await;
    let mut writer = take(&two).await.unwrap();
    for text in ["other", "other too", "and more"] {
        note(&mut writer, text).await;
    }
    drop(writer);
    assert!(matches!(take(&one).await, Err(LogError::LostTail { seq: 4, .. })));
}

/// Spec: J2
#[tokio::test]
async fn accepted_loss_frees_the_run() {
    let folder = Folder::new();
    let (one, two) = set_back(&folder).await;
    take(&one).await.unwrap_err();
    let run = RunId::from("run_1");
    let (claim, lost) = two.log().claim_with_loss(&run).await.unwrap();
    let lost: LostTail = lost.unwrap();
    let summary = two.log().summary(&run).await.unwrap().unwrap();
    let mut writer = RunWriter::resume(log_of(&two), summary, claim);
    append(&mut writer, RunResumed::new("ops").accepting(lost).into()).await.unwrap();
    let kept = two.log().summary(&run).await.unwrap().unwrap().accepted_loss.unwrap();
    assert_eq!((kept.tail, kept.count), (lost, 1));
    drop(writer);
    assert!(one.log().lost_tails().await.unwrap().is_empty());
    for database in [&one, &two] {
        drop(take(database).await.unwrap());
    }
}

/// Spec: J2
#[tokio::test]
async fn restored_tail_is_taken_again() {
    let folder = Folder::new();
    let one = open(&folder.file()).await;
    let mut writer = begin(&log_of(&one), "run_1").await;
    let older = Backup::take(&folder.file(), "older.db").await;
    note(&mut writer, "lost").await;
    drop(writer);
    drop(take(&one).await.unwrap());
    let newer = Backup::take(&folder.file(), "newer.db").await;
    older.restore(&folder.file()).await;
    take(&one).await.unwrap_err();
    newer.restore(&folder.file()).await;
    drop(take(&one).await.unwrap());
    assert!(one.log().lost_tails().await.unwrap().is_empty());
}

/// Spec: J2
#[tokio::test]
async fn run_without_its_record_does_not_begin_again() {
    let folder = Folder::new();
    let (one, two) = (open(&folder.file()).await, open(&folder.file()).await);
    let empty = Backup::take(&folder.file(), "backup.db").await;
    drop(begin(&log_of(&one), "run_1").await);
    drop(take(&one).await.unwrap());
    empty.restore(&folder.file()).await;
    for database in [&one, &two] {
        let mut again = RunWriter::new(log_of(database), "run_1".into());
        let error = append(&mut again, crate::started("ses_run_1")).await.unwrap_err();
        assert!(matches!(error, LogError::Lost(_)), "{error:?}");
    }
}

/// Spec: J2, S10. A process that knows a removed run takes another of its id, and still misses what is lost of that one.
#[tokio::test]
async fn removed_run_begins_again_elsewhere() {
    let folder = Folder::new();
    let (one, two) = (open(&folder.file()).await, open(&folder.file()).await);
    for by in [&one, &two, &one] {
        let mut writer = begin(&log_of(by), "run_1").await;
        for text in ["a note", "another"] {
            note(&mut writer, text).await;
        }
        append(&mut writer, finished()).await.unwrap();
        drop(writer);
        one.log().summary(&"run_1".into()).await.unwrap();
        two.delete_run(&"run_1".into()).await.unwrap();
    }
    let mut writer = begin(&log_of(&two), "run_1").await;
    let backup = Backup::take(&folder.file(), "backup.db").await;
    drop(writer);
    writer = take(&one).await.unwrap();
    note(&mut writer, "lost").await;
    drop(writer);
    backup.restore(&folder.file()).await;
    assert!(matches!(take(&one).await, Err(LogError::LostTail { seq: 2, .. })));
}

/// Spec: J2, S10
#[tokio::test]
async fn removed_and_erased_events_are_no_loss() {
    let folder = Folder::new();
    let (one, two) = (open(&folder.file()).await, open(&folder.file()).await);
    let mut writer = begin(&log_of(&one), "run_1").await;
    note(&mut writer, "private").await;
    drop(writer);
    drop(take(&two).await.unwrap());
    while two.log().erase(&"run_1".into(), 2).await.is_err() {
        SystemClock.sleep(Duration::from_millis(20)).await;
    }
    let mut writer = take(&one).await.unwrap();
    append(&mut writer, finished()).await.unwrap();
    drop(writer);
    one.delete_run(&"run_1".into()).await.unwrap();
    drop(begin(&log_of(&one), "run_1").await);
    drop(take(&one).await.unwrap());
}
