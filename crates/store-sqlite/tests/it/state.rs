//! State in a file: the contract, what goes with runs and sessions, several processes.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, VirtualClock};
use backstop_store_sqlite::Database;
use layer0::state::{Expected, Scope, StateQuery, StateWrite};
use layer0::{StateStore, Timestamp};
use serde_json::json;
use sqlx::{ConnectOptions, Connection, Executor};

use super::{Folder, open};

/// Spec: K1
#[tokio::test]
async fn sqlite_state_holds_the_contract() {
    let suite = backstop_testkit::contract::state_store(async |clock: Arc<dyn Clock>| {
        Arc::new(Database::in_memory().await.unwrap().state().clock(clock)) as _
    });
    suite.check().await;
}

async fn put(database: &Database, scope: Scope, key: &str) -> u64 {
    let value = json!(format!("here for {scope}"));
    database.state().write(StateWrite::new(scope, key, value)).await.unwrap()
}

async fn keys(database: &Database, scope: Scope) -> Vec<String> {
    let listed = database.state().list(StateQuery::new(scope)).await.unwrap();
    listed.into_iter().map(|(key, _)| key).collect()
}

/// Spec: K1. Written values are there in the next process, and a version is never given again.
#[tokio::test]
async fn state_outlives_its_process() {
    let folder = Folder::new();
    let first = open(&folder.file()).await;
    let version = put(&first, Scope::Global, "k").await;
    assert!(first.state().delete(&Scope::Global, "k", Expected::Any).await.unwrap());
    put(&first, Scope::Global, "stays").await;
    first.close().await;
    let next = open(&folder.file()).await;
    assert_eq!(keys(&next, Scope::Global).await, ["stays"]);
    assert!(put(&next, Scope::Global, "k").await > version + 1);
    next.close().await;
}

/// Spec: K1, K2. What is forgotten of a session is its state too.
#[tokio::test]
async fn forgotten_session_leaves_no_state() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    put(&database, Scope::Session("zebra".into()), "k").await;
    put(&database, Scope::Session("s-2".into()), "k").await;
    let now = Timestamp::from_millis(1);
    let forgotten = database.forget_session(&"zebra".into(), "ops", false, now).await.unwrap();
    assert_eq!(forgotten.removed.state, 1);
    assert!(keys(&database, Scope::Session("zebra".into())).await.is_empty());
    assert_eq!(keys(&database, Scope::Session("s-2".into())).await, ["k"]);
    database.close().await;
    let raw = std::fs::read(folder.file()).unwrap();
    assert!(!raw.windows(5).any(|bytes| bytes == b"zebra"), "nothing of it is in the file");
}

/// Spec: K1. Values whose time is over are taken away, not only left out.
#[tokio::test]
async fn expired_values_are_taken_away() {
    let folder = Folder::new();
    let database = open(&folder.file()).await;
    let clock = VirtualClock::starting_at(Timestamp::from_millis(1_000));
    let state = database.state().clock(Arc::new(clock.clone()));
    let write = |key: &str| StateWrite::new(Scope::Global, key, json!("for a time"));
    for key in ["a", "b"] {
        state.write(write(key).expires_after(Duration::from_secs(10))).await.unwrap();
    }
    clock.set_time_of_day(700_000);
    state.write(write("stays")).await.unwrap();
    let count = async || {
        let mut file = sqlx::sqlite::SqliteConnectOptions::new()
            .filename(folder.file())
            .connect()
            .await
            .unwrap();
        let row = file.fetch_one("SELECT count(*) FROM state").await.unwrap();
        file.close().await.unwrap();
        sqlx::Row::get::<i64, _>(&row, 0)
    };
    while count().await > 1 {
        tokio::task::yield_now().await;
    }
    database.close().await;
}

/// Spec: K1. Two processes that write at once lose nothing.
#[tokio::test]
async fn two_processes_lose_no_update() {
    let folder = Folder::new();
    let databases = [open(&folder.file()).await, open(&folder.file()).await];
    let count_up = |database: &Database| {
        let state = database.state();
        async move {
            for _ in 0..20 {
                loop {
                    let found = state.read(&Scope::Global, "count").await.unwrap();
                    let (count, expected) = match found {
                        Some(found) => {
                            (found.value.read::<u64>().unwrap(), Expected::Version(found.version))
                        }
                        None => (0, Expected::Absent),
                    };
                    let write = StateWrite::new(Scope::Global, "count", json!(count + 1));
                    if state.write(write.expecting(expected)).await.is_ok() {
                        break;
                    }
                }
            }
        }
    };
    tokio::join!(count_up(&databases[0]), count_up(&databases[1]));
    let count = databases[0].state().read(&Scope::Global, "count").await.unwrap().unwrap();
    assert_eq!(count.value, json!(40));
    for database in databases {
        database.close().await;
    }
}

/// Spec: K1, S12. Writes of one commit see one another, and one that is refused takes no other with it.
#[tokio::test]
async fn writes_of_a_commit_are_decided_in_turn() {
    let database = Database::in_memory().await.unwrap();
    let state = database.state();
    let write = |key: &str, expected: Expected| {
        let write = StateWrite::new(Scope::Global, key, json!({ "word": key }));
        state.write(write.expecting(expected))
    };
    let before = database.commits();
    let mut writes: Vec<_> =
        (0..40).map(|n| write(&format!("key-{n}"), Expected::Absent)).collect();
    writes.push(write("stale", Expected::Version(1)));
    writes.extend((0..20).map(|_| write("lock", Expected::Absent)));
    writes.push(write("lock", Expected::Any));
    let written = futures_util::future::join_all(writes).await;
    assert!(database.commits() - before <= 3, "{} commits", database.commits() - before);
    let versions: Vec<u64> = written.iter().flatten().copied().collect();
    assert_eq!(versions.len(), 42, "40 keys, one of 20 locks, and the write over it");
    assert!(versions.windows(2).all(|two| two[0] < two[1]), "{versions:?}");
    assert_eq!(written.iter().filter(|it| it.is_err()).count(), 20);
    let lock = state.read(&Scope::Global, "lock").await.unwrap().unwrap();
    assert_eq!(Some(&lock.version), versions.last());
    // The index has the last one only.
    let found = state.search(StateQuery::new(Scope::Global), "lock").await.unwrap();
    assert_eq!(found.len(), 1);
}

/// Spec: K1. Keys with the last character of Unicode behind the prefix are listed too, in the order of their bytes.
#[tokio::test]
async fn every_key_behind_a_prefix_is_listed() {
    let state = Database::in_memory().await.unwrap().state();
    let scope = Scope::Global;
    let keys = [
        "o",
        "once/",
        "once/a",
        "once/\u{e000}",
        "once/\u{e000}a",
        "once/\u{f8ff}",
        "once/\u{10ffff}",
        "once/\u{10ffff}z",
        "once0",
        "\u{10ffff}",
        "\u{10ffff}a",
    ];
    for key in keys {
        state.write(StateWrite::new(scope.clone(), key, json!(1))).await.unwrap();
    }
    for prefix in ["", "once/", "once/\u{e000}", "once/\u{10ffff}", "\u{10ffff}", "none"] {
        let expected: Vec<&str> = keys.into_iter().filter(|key| key.starts_with(prefix)).collect();
        let listed = async |query: StateQuery| -> Vec<String> {
            let listed = state.list(query).await.unwrap();
            listed.into_iter().map(|(key, _)| key).collect()
        };
        let query = || StateQuery::new(scope.clone()).prefix(prefix);
        assert_eq!(listed(query()).await, expected, "{prefix:?}");
        let mut backwards: Vec<&str> = expected.clone();
        backwards.reverse();
        assert_eq!(listed(query().backwards()).await, backwards, "{prefix:?}");
        assert_eq!(listed(query().newest_first()).await.len(), expected.len(), "{prefix:?}");
    }
}
