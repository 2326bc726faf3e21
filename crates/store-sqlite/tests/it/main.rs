//! Log and error store on real files.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod chains;
mod claims;
mod clock_steps;
#[cfg(target_os = "linux")]
mod crossings;
mod disk;
mod feed;
mod keys;
mod lists;
mod lost_tails;
mod meanwhile;
mod migration;
mod moved;
mod network;
mod removal;
mod retention;
mod sealed;
mod sharing;
mod state;
mod subscriptions;
mod transcripts;
mod unreadable;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use backstop_error_store::{ErrorFilter, ErrorStore, NewError, Origin, StoreError};
use backstop_event_log::{EventLog, LogError, RunFilter, RunWriter, Runs, Seed, read_events};
use backstop_redact::Redactor;
use backstop_store_sqlite::{Database, Durability, OpenError};
use layer0::event::{Actor, AgentRecord, EventKind, RunStarted, Warning};
use layer0::id::RunId;
use layer0::{Code, Timestamp, code};
use sqlx::{ConnectOptions, Connection, Executor};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("backstop.db")
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

async fn open(path: &Path) -> Database {
    Database::open(path, Durability::Normal).await.unwrap()
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(1_767_225_600_000 + ms)
}

fn started(session: &str) -> EventKind {
    RunStarted::new(
        "hello",
        session.into(),
        AgentRecord::new("demo", "d", serde_json::json!({"name": "demo"})),
    )
    .into()
}

async fn write_run(log: &Arc<dyn EventLog>, run: &str, session: &str, events: u64) {
    let mut writer = RunWriter::new(Arc::clone(log), run.into());
    writer.stage(&Seed::new("test"), at(0), Actor::Runtime, None, started(session));
    for number in 2..=events {
        let message = format!("event {number} with ' quote and \u{0} zero");
        writer.stage(
            &Seed::new("test"),
            at(i64::try_from(number).unwrap()),
            Actor::Machine,
            Some(1),
            Warning::new(message).into(),
        );
        writer.commit().await.unwrap();
    }
    writer.commit().await.unwrap();
}

fn error(session: &str, call: &str, text: &str) -> NewError {
    error_at(0, session, call, text)
}

fn error_at(ms: i64, session: &str, call: &str, text: &str) -> NewError {
    let origin = Origin::new(at(ms), session, "run_1", call, "sql");
    let reason = Code::new(code::TOOL_EXECUTION_FAILED);
    NewError::new(origin, reason, Some("SQL_ERROR"), text, &Redactor::new())
}

async fn tamper(path: &Path, sql: &'static str) {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    let mut connection = options.connect().await.unwrap();
    connection.execute(sql).await.unwrap();
    connection.close().await.unwrap();
}

/// Spec: D1, S11
#[tokio::test]
async fn a_run_survives_reopening() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    write_run(&log, "run_1", "s-1", 5).await;
    write_run(&log, "run_2", "s-2", 2).await;
    database.close().await;

    let database = Database::open_read_only(folder.file()).await.unwrap();
    let (summary, events) = read_events(&database.log(), &"run_1".into()).await.unwrap();
    assert_eq!((summary.last_seq, &*summary.agent, events.len()), (5, "demo", 5));
    assert_eq!(events[4].caused_by, Some(1));
    let filter = RunFilter::new().session("s-2");
    let runs = database.log().runs(filter).await.unwrap();
    assert_eq!(runs.iter().map(|run| run.run.as_str()).collect::<Vec<_>>(), ["run_2"]);
    assert_eq!(database.log().runs(RunFilter::new().limit(1)).await.unwrap().len(), 1);
}

/// Spec: C3
#[tokio::test]
async fn a_reader_leaves_no_file_behind() {
    let folder = Folder::new();
    let missing = Database::open_read_only(folder.file()).await;
    assert!(matches!(missing, Err(OpenError::Missing(_))));
    assert!(folder.names().is_empty());

    let database = open(&folder.file()).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    write_run(&log, "run_1", "s-1", 2).await;
    database.close().await;
    assert_eq!(folder.names(), ["backstop.db"]);

    let database = Database::open_read_only(folder.file()).await.unwrap();
    database.log().runs(RunFilter::default()).await.unwrap();
    let refused = RunWriter::new(Arc::new(database.log()), RunId::from("run_9"));
    let mut refused = refused;
    refused.stage(&Seed::new("test"), at(0), Actor::Runtime, None, started("s"));
    assert!(refused.commit().await.is_err());
    database.close().await;
    assert_eq!(folder.names(), ["backstop.db"]);
}

/// Spec: D1
#[tokio::test]
async fn changes_made_behind_our_back_are_found() {
    for (sql, seq) in [
        ("UPDATE events SET data = '{\"message\":\"x\"}' WHERE seq = 3", 3),
        ("UPDATE events SET data = 'no json' WHERE seq = 2", 2),
        ("UPDATE events SET hash = x'00' WHERE seq = 4", 4),
        ("UPDATE events SET actor = 'ghost' WHERE seq = 4", 4),
        ("DELETE FROM events WHERE seq = 3", 3),
        ("DELETE FROM events WHERE seq = 5", 5),
    ] {
        let folder = Folder::new();
        let database = open(&folder.file()).await;
        let log: Arc<dyn EventLog> = Arc::new(database.log());
        write_run(&log, "run_1", "s-1", 5).await;
        database.close().await;
        tamper(&folder.file(), sql).await;
        let database = open(&folder.file()).await;
        let read = read_events(&database.log(), &"run_1".into()).await;
        assert!(
            matches!(read, Err(LogError::Tampered { seq: found, .. }) if found == seq),
            "{sql}: {read:?}"
        );
    }
}

/// Spec: D11
#[tokio::test]
async fn a_newer_schema_is_refused() {
    let folder = Folder::new();
    open(&folder.file()).await.close().await;
    tamper(&folder.file(), "PRAGMA user_version = 99").await;
    let opened = Database::open(folder.file(), Durability::Normal).await;
    assert!(matches!(opened, Err(OpenError::SchemaNewer { found: 99, .. })), "{opened:?}");
}

#[tokio::test]
async fn foreign_databases_are_left_alone() {
    let folder = Folder::new();
    std::fs::write(folder.file(), "this is no database, it is a diary of some length").unwrap();
    let opened = Database::open(folder.file(), Durability::Normal).await;
    assert!(matches!(opened, Err(OpenError::Unreadable { .. })), "{opened:?}");
    assert!(std::fs::read_to_string(folder.file()).unwrap().starts_with("this is no"));

    let other = folder.0.path().join("other.db");
    std::fs::write(&other, "").unwrap();
    tamper(&other, "CREATE TABLE diary (day TEXT)").await;
    let opened = Database::open(&other, Durability::Normal).await;
    assert!(matches!(opened, Err(OpenError::Foreign(_))), "{opened:?}");
}

/// Spec: D8
#[tokio::test]
async fn a_stale_writer_is_refused() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    write_run(&log, "run_1", "s-1", 3).await;
    let mut stale = RunWriter::new(log, "run_1".into());
    stale.stage(&Seed::new("test"), at(0), Actor::Runtime, None, started("s-1"));
    assert!(matches!(stale.commit().await, Err(LogError::Conflict { seq: 1, .. })));
}

/// Spec: S1, S8
#[tokio::test]
async fn same_error_is_one_counted_row() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let store = database.errors();
    let first = store.store(error("s-1", "c1", "boom '); DROP TABLE errors; --")).await.unwrap();
    let again = store.store(error("s-1", "c2", "boom '); DROP TABLE errors; --")).await.unwrap();
    assert_eq!((again.occurrences, &again.id), (2, &first.id));
    let other = store.store(error("s-2", "c1", "boom '); DROP TABLE errors; --")).await.unwrap();
    assert_ne!(other.id, first.id);
    assert_eq!(first.id.as_str().len(), 26);

    let found = store.get(&"s-1".into(), &first.id).await.unwrap().into_item().unwrap();
    assert_eq!((found.occurrences(), found.call_id().as_str()), (2, "c1"));
    assert_eq!(backstop_error_store::readable(found.raw()), "boom '); DROP TABLE errors; --");
    assert_eq!(store.get(&"s-2".into(), &first.id).await.unwrap().into_item(), None);
    let filter = ErrorFilter::new().tool("sql").limit(5);
    assert_eq!(store.list(filter).await.unwrap().len(), 2);
    assert!(store.list(ErrorFilter::new().tool("web")).await.unwrap().is_empty());
}

/// Spec: S12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_commit_survives_a_bad_caller() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    write_run(&log, "run_0", "s", 2).await;
    let tasks: Vec<_> = (0..64)
        .map(|number| {
            let (log, store) = (Arc::clone(&log), database.errors());
            tokio::spawn(async move {
                if number % 8 == 0 {
                    // A stale writer among the work of other writers.
                    let mut stale = RunWriter::new(log, "run_0".into());
                    stale.stage(&Seed::new("test"), at(0), Actor::Runtime, None, started("s"));
                    assert!(matches!(stale.commit().await, Err(LogError::Conflict { .. })));
                } else {
                    write_run(&log, &format!("run_{number}"), &format!("s-{number}"), 10).await;
                    store.store(error("s", "c", &format!("error {number}"))).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(database.log().runs(RunFilter::default()).await.unwrap().len(), 57);
    assert_eq!(database.errors().list(ErrorFilter::default()).await.unwrap().len(), 56);
    for run in database.log().runs(RunFilter::default()).await.unwrap() {
        read_events(&*log, &run.run).await.unwrap();
    }
}

/// Spec: D1. Links are no facts: a run is read without them.
#[tokio::test]
async fn a_changed_link_hides_nothing() {
    for sql in [
        "UPDATE events SET prev = NULL WHERE seq = 3",
        "UPDATE events SET prev = id WHERE seq = 3",
        "UPDATE events SET prev = 1 WHERE seq = 4",
        "UPDATE runs SET last_event = NULL",
        "UPDATE runs SET last_event = 2",
    ] {
        let folder = Folder::new();
        let database = open(&folder.file()).await;
        let log: Arc<dyn EventLog> = Arc::new(database.log());
        write_run(&log, "run_1", "s-1", 5).await;
        database.close().await;
        tamper(&folder.file(), sql).await;
        let database = open(&folder.file()).await;
        let read = read_events(&database.log(), &"run_1".into()).await.unwrap();
        assert_eq!(read.1.len(), 5, "{sql}");
    }
}

/// Spec: S6
#[tokio::test]
async fn locked_and_closed_databases_are_told_apart() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(folder.file());
    let mut other = options.connect().await.unwrap();
    other.execute("BEGIN EXCLUSIVE").await.unwrap();
    let locked = database.errors().store(error("s-1", "c1", "x")).await;
    assert!(matches!(locked, Err(StoreError::Locked(_))), "{locked:?}");
    other.execute("ROLLBACK").await.unwrap();
    database.errors().store(error("s-1", "c1", "x")).await.unwrap();
    database.close().await;
    let closed = database.errors().store(error("s-1", "c1", "x")).await;
    assert!(matches!(closed, Err(StoreError::Closed)), "{closed:?}");
    let closed = database.errors().list(ErrorFilter::default()).await;
    assert!(matches!(closed, Err(StoreError::Closed)), "{closed:?}");
}

#[tokio::test]
async fn a_database_in_memory_works_the_same() {
    let database = Database::in_memory().await.unwrap();
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    write_run(&log, "run_1", "s-1", 4).await;
    assert_eq!(read_events(&*log, &"run_1".into()).await.unwrap().1.len(), 4);
    database.errors().store(error("s-1", "c1", "x")).await.unwrap();
    assert_eq!(database.errors().list(ErrorFilter::default()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn foreign_database_stays_unchanged() {
    let folder = Folder::new();
    std::fs::write(folder.file(), "").unwrap();
    tamper(&folder.file(), "CREATE TABLE diary (day TEXT)").await;
    let before = std::fs::read(folder.file()).unwrap();
    assert!(matches!(
        Database::open(folder.file(), Durability::Full).await,
        Err(OpenError::Foreign(_))
    ));
    assert_eq!(std::fs::read(folder.file()).unwrap(), before);
    assert_eq!(folder.names(), ["backstop.db"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_may_create_the_same_database_at_once() {
    for _ in 0..5 {
        let folder = Folder::new();
        let opening: Vec<_> = (0..16)
            .map(|_| {
                let file = folder.file();
                tokio::spawn(
                    async move { Database::open(file, Durability::Normal).await.map(drop) },
                )
            })
            .collect();
        for opened in opening {
            opened.await.unwrap().unwrap();
        }
    }
}

/// Spec: D1
#[tokio::test]
async fn a_cause_that_was_made_up_is_found() {
    for sql in [
        "UPDATE events SET caused_by = 0 WHERE seq = 1",
        "UPDATE events SET caused_by = -1 WHERE seq = 1",
    ] {
        let folder = Folder::new();
        let database = open(&folder.file()).await;
        let log: Arc<dyn EventLog> = Arc::new(database.log());
        write_run(&log, "run_1", "s-1", 3).await;
        database.close().await;
        tamper(&folder.file(), sql).await;
        let database = open(&folder.file()).await;
        let read = read_events(&database.log(), &"run_1".into()).await;
        assert!(matches!(read, Err(LogError::Tampered { seq: 1, .. })), "{sql}: {read:?}");
    }
}

#[tokio::test]
async fn unreadable_row_does_not_hide_others() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    for run in ["run_1", "run_2", "run_3"] {
        write_run(&log, run, &format!("s-{run}"), 2).await;
    }
    database.close().await;
    tamper(&folder.file(), "UPDATE runs SET summary = '{}' WHERE run = 'run_2'").await;
    let runs = open(&folder.file()).await.log().runs(RunFilter::default()).await.unwrap();
    assert_eq!(
        runs.iter().map(|run| run.run.as_str()).collect::<Vec<_>>(),
        ["run_3", "run_2", "run_1"]
    );
    assert_eq!(runs[1].state, backstop_event_log::RunState::Unreadable);
}
