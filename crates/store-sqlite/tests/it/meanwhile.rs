//! Removals with other actors before, during and after them.

use std::sync::Arc;

use backstop_error_store::{ErrorStore, Lookup, NewResult, Origin, ResultStore};
use backstop_event_log::{
    Erasures, EventLog, LogError, RunFilter, RunWriter, Runs, Seed, read_events,
};
use backstop_redact::Redactor;
use backstop_store_sqlite::Database;
use backstop_testkit::contract::{RemovalStore, removals};
use layer0::StateStore;
use layer0::event::{Actor, EventKind, RunForked};
use layer0::state::{Scope, StateWrite};
use serde_json::json;

use crate::removal::{DAY, WEEK, append, begin, over};
use crate::retention::finished;
use crate::{Folder, at, error, error_at, open, started, tamper};

/// Spec: S10. A table of each removal, each actor and each step between which it acts.
#[tokio::test]
async fn removals_meet_other_actors() {
    let folder = Folder::new();
    let (shelf, other) = (open(&folder.file()).await, open(&folder.file()).await);
    let (log, errors) = (Arc::new(other.log()), Arc::new(other.errors()));
    removals(RemovalStore { shelf, log, errors, queue: None }).await;
}

/// Spec: S10, D1. What is erased while it is copied does not come back with the copy.
#[tokio::test]
async fn a_fork_copies_no_erased_event() {
    let database = Database::in_memory().await.unwrap();
    over(&database, 0, "run_1", started("a")).await;
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let (_, events) = read_events(&*log, &"run_1".into()).await.unwrap();
    let records = log.records(&"run_1".into(), 1).await.unwrap();
    log.erase(&"run_1".into(), 1).await.unwrap();
    let mut copy =
        RunWriter::copy(Arc::clone(&log), "run_copy".into(), &events[..1], records[..1].to_vec());
    let forked = RunForked::new("run_copy", "ses_copy", "run_1", 1);
    copy.stage(&Seed::new("test"), at(1), Actor::Runtime, None, forked.into());
    let refused = copy.commit().await.map(|_| ());
    assert!(matches!(refused, Err(LogError::Erased { seq: 1, .. })), "{refused:?}");
}

/// Spec: S10. A session of one run, forgotten by a process that does nothing else.
#[tokio::test]
async fn nothing_of_a_forgotten_session_is_left() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    // The file has other sessions too, so that its pages stay.
    for number in 0..40 {
        over(&database, 0, &format!("other_{number}"), started(&format!("o-{number}"))).await;
    }
    let mut writer = begin(&database, 0, "run_1", labeled("s-1", "label-of-eve")).await;
    append(&mut writer, 5, vec![finished()]).await;
    drop(writer);
    database.errors().store(error("s-1", "c", "error-text-of-eve")).await.unwrap();
    let origin = Origin::new(at(0), "s-1", "run_1", "c1", "log");
    let result = NewResult::new(origin, "result-text-of-eve", &Redactor::new());
    database.results().put(result).await.unwrap();
    let of_run = StateWrite::new(Scope::Run("run_1".into()), "k", json!("runstatetext evezebra"));
    database.state().write(of_run).await.unwrap();
    over(&database, 0, "other_last", started("o-last")).await;
    database.close().await;

    let database = open(&folder.file()).await;
    database.forget_session(&"s-1".into(), "ann", false, at(9 * DAY)).await.unwrap();
    database.close().await;
    let texts =
        ["label-of-eve", "error-text-of-eve", "result-text-of-eve", "runstatetext", "evezebra"];
    let left: Vec<&str> = texts.into_iter().filter(|text| is_in(&folder, text)).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Spec: S10. SQLite copies rows between pages as it goes.
#[tokio::test]
async fn moved_rows_of_forgotten_sessions_are_overwritten() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let name = |number: u64| format!("eve-{:016x}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    for number in 0..400_u64 {
        let session = format!("s-{number}");
        let first = labeled(&session, &name(number));
        let mut writer = begin(&database, 0, &format!("run_{number}"), first).await;
        append(&mut writer, 5, vec![finished()]).await;
        let scope = Scope::Session(session.into());
        database.state().write(StateWrite::new(scope, name(number), json!("x"))).await.unwrap();
    }
    database.close().await;
    let database = open(&folder.file()).await;
    for number in 300..400_u64 {
        let session = format!("s-{number}").as_str().into();
        database.forget_session(&session, "ann", false, at(9 * DAY)).await.unwrap();
    }
    database.close().await;
    let left: Vec<u64> = (300..400).filter(|number| is_in(&folder, &name(*number))).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Spec: D1. What the first event says of labels is erased with it.
#[tokio::test]
async fn redaction_takes_labels_too() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    over(&database, 0, "run_1", labeled("a", "eve@example.org")).await;
    let log = database.log();
    log.erase(&"run_1".into(), 1).await.unwrap();
    let found = log.runs(RunFilter::new().label("customer", "eve@example.org")).await.unwrap();
    assert!(found.is_empty(), "{found:?}");
    database.close().await;
    assert!(!is_in(&folder, "eve@example.org"));
}

/// Spec: S10. A process died between the row of a run and its texts, and the run was copied back.
#[tokio::test]
async fn a_sweep_spares_a_run_that_returned() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    over(&database, 0, "run_1", started("s-1")).await;
    let half = "INSERT INTO removed (run_id, run, event) SELECT id, run, last_event FROM runs; DELETE FROM runs";
    tamper(&folder.file(), half).await;
    over(&database, 0, "run_1", started("s-1")).await;
    let text = database.errors().store(error("s-1", "c", "boom")).await.unwrap();
    database.prune_runs(WEEK, &[], at(0)).await.unwrap();
    let found = database.errors().find(&text.id).await.unwrap();
    assert!(matches!(found, Lookup::Found(_)), "{found:?}");
    let refers = database.delete_run(&"run_1".into()).await.unwrap();
    assert_eq!(refers.errors, 1, "what it refers to is known still");
}

/// Spec: S10. A process died while it forgot a session: what it stored is forgotten too, and not expired.
#[tokio::test]
async fn sweep_forgets_what_was_to_be_forgotten() {
    for (is_silent, half) in [
        (true, "INSERT INTO removed SELECT id, run, last_event, TRUE FROM runs; DELETE FROM runs"),
        (
            false,
            "INSERT INTO removed SELECT id, run, last_event, FALSE FROM runs; DELETE FROM runs",
        ),
    ] {
        let folder = Folder::new();
        let database = open(&folder.file()).await;
        over(&database, 0, "run_1", started("s-1")).await;
        let text = database.errors().store(error("s-1", "c", "boom")).await.unwrap();
        tamper(&folder.file(), half).await;
        let position = "INSERT INTO subscriptions VALUES ('b', '*', 1, 'start'); \
            INSERT INTO positions VALUES ('b', 'run_1', 1), ('b', 'run_2', 1)";
        tamper(&folder.file(), position).await;
        database.prune_runs(WEEK, &[], at(0)).await.unwrap();
        let found = database.errors().find(&text.id).await.unwrap();
        assert_eq!(found.is_expired(), !is_silent, "{found:?}");
        database.close().await;
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(folder.file());
        let mut connection = sqlx::ConnectOptions::connect(&options).await.unwrap();
        let left: Vec<String> = sqlx::query_scalar("SELECT run FROM positions")
            .fetch_all(&mut connection)
            .await
            .unwrap();
        assert_eq!(left, ["run_2"], "the position of a removed run goes with it");
    }
}

/// Spec: S10. A file of an older version is not written anew while a run is at work.
#[tokio::test]
async fn old_file_is_cleaned_between_runs() {
    let folder = Folder::new();
    open(&folder.file()).await.close().await;
    tamper(&folder.file(), "UPDATE erasing SET is_clean = 0").await;
    let database = open(&folder.file()).await;
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(folder.file());
    let mut connection = sqlx::ConnectOptions::connect(&options).await.unwrap();
    let mut is_clean = async || -> bool {
        sqlx::query_scalar("SELECT is_clean FROM erasing").fetch_one(&mut connection).await.unwrap()
    };
    let at_work = crate::claims::begin(&(Arc::new(database.log()) as _), "run_9").await;
    let remove = async || {
        over(&database, 0, "run_1", started("s-1")).await;
        database.delete_run(&"run_1".into()).await.unwrap();
    };
    remove().await;
    assert!(!is_clean().await);
    drop(at_work);
    for _ in 0..100 {
        if is_clean().await {
            return;
        }
        remove().await;
    }
    panic!("the file is cleaned once the run is free");
}

/// Spec: S10, D1. The claim of the run that is redacted holds nothing up, nor does a process that died.
#[tokio::test]
async fn redaction_cleans_an_old_file() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    over(&database, 0, "run_1", started("s-1")).await;
    over(&database, 0, "run_2", started("s-2")).await;
    let old = "UPDATE erasing SET is_clean = 0; UPDATE runs SET owner = 'dead' WHERE run = 'run_2'";
    tamper(&folder.file(), old).await;
    let other = open(&folder.file()).await;
    let at_work = crate::claims::begin(&(Arc::new(other.log()) as _), "run_9").await;
    let is_clean = async || -> bool {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(folder.file());
        let mut connection = sqlx::ConnectOptions::connect(&options).await.unwrap();
        sqlx::query_scalar("SELECT is_clean FROM erasing").fetch_one(&mut connection).await.unwrap()
    };
    database.log().erase(&"run_1".into(), 1).await.unwrap();
    assert!(!is_clean().await, "another process is at work");
    drop(at_work);
    other.close().await;
    database.log().erase(&"run_1".into(), 2).await.unwrap();
    assert!(is_clean().await);
}

/// Spec: S10. What others wrote as the time decides nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_ahead_removes_nothing() {
    let folder = Folder::new();
    let (sound, ahead) = (open(&folder.file()).await, open(&folder.file()).await);
    over(&sound, 0, "run_1", started("s-1")).await;
    let text = sound.errors().store(error("s-1", "c", "boom")).await.unwrap();
    ahead.errors().store(error_at(366 * DAY, "s-2", "c", "boom")).await.unwrap();
    // Its pass has nothing left to do once the database is closed.
    for _ in 0..200 {
        tokio::task::yield_now().await;
        let found = sound.errors().find(&text.id).await.unwrap();
        assert!(matches!(found, Lookup::Found(_)), "{found:?}");
    }
    ahead.close().await;
    let found = sound.errors().find(&text.id).await.unwrap();
    assert!(matches!(found, Lookup::Found(_)), "{found:?}");
}

fn labeled(session: &str, value: &str) -> EventKind {
    let EventKind::RunStarted(mut first) = started(session) else { unreachable!() };
    first.labels = Arc::new([("customer".to_owned(), value.to_owned())].into());
    first.into()
}

fn is_in(folder: &Folder, text: &str) -> bool {
    let bytes = std::fs::read(folder.file()).unwrap();
    bytes.windows(text.len()).any(|found| found == text.as_bytes())
}
