//! Errors and state of several processes in one database.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{SystemClock, VirtualClock};
use backstop_error_store::{ErrorFilter, ErrorStore};
use backstop_event_log::{EventLog, Inbox, InboxRequest, Settlement};
use backstop_store_postgres::Database;
use backstop_testkit::is_own_process;
use layer0::error::StateError;
use layer0::failure::{Effect, Failure};
use layer0::state::{Expected, Scope, StateAdd, StateQuery, StateWrite};
use layer0::{StateStore, Timestamp};
use serde_json::json;
use sqlx::Connection;
use tokio::task::JoinSet;

use crate::support::{at, begin, connection, error, open, server, until};

const HANDLES: usize = 8;
const ROUNDS: usize = 20;

async fn handles(url: &str) -> Vec<Database> {
    let mut handles = Vec::new();
    for _ in 0..HANDLES {
        handles.push(open(url).await);
    }
    handles
}

/// Spec: J2, S8, S12
#[tokio::test(flavor = "multi_thread")]
async fn eight_handles_count_each_error_once() {
    let server = server!();
    let handles = handles(&server.database().await).await;
    let mut writing = JoinSet::new();
    for (number, database) in handles.iter().enumerate() {
        for round in 0..ROUNDS {
            let store = database.errors();
            writing.spawn(async move {
                let session = format!("s-{number}");
                let own = error(&session, "run_1", &format!("own {round}"));
                store.store(own).await.unwrap();
                let shared = error("shared", &format!("run_{number}"), "boom");
                store.store(shared).await.unwrap()
            });
        }
    }
    let stored = writing.join_all().await;
    let ids: BTreeSet<&str> = stored.iter().map(|stored| stored.id.as_str()).collect();
    let counts: BTreeSet<u64> = stored.iter().map(|stored| stored.occurrences).collect();
    let all = HANDLES * ROUNDS;
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(counts, (1..=u64::try_from(all).unwrap()).collect(), "each count is given once");
    let listed = handles[0].errors().list(ErrorFilter::new()).await.unwrap();
    assert_eq!(listed.len(), all + 1);
    for number in 0..HANDLES {
        let met = ErrorFilter::new().session("shared").run(format!("run_{number}"));
        assert_eq!(handles[0].errors().list(met).await.unwrap().len(), 1, "run_{number}");
    }
    for database in handles {
        database.close().await;
    }
}

/// Spec: J2, K1
#[tokio::test(flavor = "multi_thread")]
async fn eight_handles_lose_no_update() {
    let server = server!();
    let handles = handles(&server.database().await).await;
    let mut writing = JoinSet::new();
    for database in &handles {
        let state = database.state();
        writing.spawn(async move {
            let mut versions = Vec::new();
            for _ in 0..ROUNDS {
                versions.push(count_up(&state).await);
            }
            let lock = StateWrite::new(Scope::Global, "lock", json!("mine"));
            (versions, state.write(lock.expecting(Expected::Absent)).await)
        });
    }
    let written = writing.join_all().await;
    let versions: BTreeSet<u64> =
        written.iter().flat_map(|(versions, _)| versions).copied().collect();
    assert_eq!(versions.len(), HANDLES * ROUNDS, "no version is given twice");
    let state = handles[0].state();
    let count = state.read(&Scope::Global, "count").await.unwrap().unwrap();
    assert_eq!(count.value, json!(HANDLES * ROUNDS));
    assert_eq!(Some(&count.version), versions.last());
    let lock = state.read(&Scope::Global, "lock").await.unwrap().unwrap();
    assert_eq!(written.iter().filter(|(_, lock)| lock.is_ok()).count(), 1, "one has the lock");
    for refused in written.iter().filter_map(|(_, lock)| lock.as_ref().err()) {
        let is_told =
            matches!(refused, StateError::Conflict { found, .. } if *found == Some(lock.version));
        assert!(is_told, "{refused:?}");
    }
    for database in handles {
        database.close().await;
    }
}

/// Adds one to a value that others add to, and returns the version it has then.
async fn count_up(state: &impl StateStore) -> u64 {
    loop {
        let found = state.read(&Scope::Global, "count").await.unwrap();
        let (count, expected) = match found {
            Some(found) => (found.value.read::<u64>().unwrap(), Expected::Version(found.version)),
            None => (0, Expected::Absent),
        };
        let write = StateWrite::new(Scope::Global, "count", json!(count + 1));
        match state.write(write.expecting(expected)).await {
            Ok(version) => return version,
            Err(StateError::Conflict { .. }) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// Spec: K1. Written values are there in the next process, and a version is never given again.
#[tokio::test(flavor = "multi_thread")]
async fn state_outlives_its_process() {
    let server = server!();
    let url = server.database().await;
    let put = async |database: &Database, key: &str| {
        let write = StateWrite::new(Scope::Global, key, json!("here"));
        database.state().write(write).await.unwrap()
    };
    let first = open(&url).await;
    let version = put(&first, "k").await;
    assert!(first.state().delete(&Scope::Global, "k", Expected::Any).await.unwrap());
    put(&first, "stays").await;
    first.close().await;
    let next = open(&url).await;
    let listed = next.state().list(StateQuery::new(Scope::Global)).await.unwrap();
    assert_eq!(listed.iter().map(|(key, _)| &**key).collect::<Vec<_>>(), ["stays"]);
    assert!(put(&next, "k").await > version + 1);
    next.close().await;
}

/// Spec: K1. Values whose time is over are taken away, not only left out.
#[tokio::test(flavor = "multi_thread")]
async fn expired_values_are_taken_away() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    let clock = VirtualClock::starting_at(Timestamp::from_millis(1_000));
    let state = database.state().clock(Arc::new(clock.clone()));
    let write = |key: &str| StateWrite::new(Scope::Global, key, json!("for a time"));
    for key in ["a", "b"] {
        state.write(write(key).expires_after(Duration::from_secs(10))).await.unwrap();
    }
    clock.set_time_of_day(700_000);
    state.write(write("stays")).await.unwrap();
    let mut other = connection(&url).await;
    let gone = async || {
        let keys: Vec<String> = sqlx::query_scalar("SELECT key FROM backstop.state")
            .fetch_all(&mut other)
            .await
            .unwrap();
        keys == ["stays"]
    };
    until("the rows of expired values are gone", gone).await;
    database.close().await;
}

/// Spec: K1, J2. A process whose clock is ahead takes no value for expired, nor does what it writes last longer.
#[tokio::test(flavor = "multi_thread")]
async fn server_decides_when_values_expire() {
    if !is_own_process("sharing::server_decides_when_values_expire") {
        return;
    }
    let server = server!();
    let url = server.database().await;
    let state = open(&url).await.state();
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    let held = |key: &str| {
        let held = StateWrite::new(Scope::Global, key, json!("held"));
        held.expires_after(minutes(10)).expecting(Expected::Absent)
    };
    state.write(held("lock")).await.unwrap();
    for by in [3_600_000, -3_600_000] {
        SystemClock::set_time_of_day(by);
        assert!(state.read(&Scope::Global, "lock").await.unwrap().is_some(), "{by}");
        let taken = state.write(held("lock")).await;
        assert!(matches!(taken, Err(StateError::Conflict { .. })), "{by}: {taken:?}");
        state.write(held(&format!("other {by}"))).await.unwrap();
        let counted = StateAdd::new(Scope::Global, format!("count {by}"), 1);
        state.add(counted.expires_after(minutes(10))).await.unwrap();
        SystemClock::set_time_of_day(-by);
    }
    let left = "SELECT bool_and(expires_at - extract(epoch FROM now()) * 1000 BETWEEN 0 AND 600000) \
        FROM backstop.state";
    let are_sound: bool =
        sqlx::query_scalar(left).fetch_one(&mut connection(&url).await).await.unwrap();
    assert!(are_sound);
}

/// Spec: T14. The two look at the same moment, before either has written.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_people_settles_a_call() {
    let server = server!();
    let url = server.database().await;
    let (one, two) = (open(&url).await, open(&url).await);
    let log: Arc<dyn EventLog> = Arc::new(one.log());
    let _writer = begin(&log, "run_1", "s").await;
    let mut held = connection(&url).await;
    let mut holding = held.begin().await.unwrap();
    let lock = "LOCK TABLE backstop.inbox IN SHARE MODE";
    sqlx::query(lock).execute(&mut *holding).await.unwrap();
    let settle = |database: &Database, settlement| {
        let log = database.log();
        let request = InboxRequest::Settle { run: "run_1".into(), call: "c1".into(), settlement };
        tokio::spawn(async move { log.send(request, "x", at(1)).await })
    };
    let first = settle(&one, Settlement::call_happened("ada"));
    let second = settle(&two, Settlement::did_not("bob"));
    let mut looking = connection(&url).await;
    until("both wait", async || {
        let waiting: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity \
             WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
        .fetch_one(&mut looking)
        .await
        .unwrap();
        waiting == 2
    })
    .await;
    holding.commit().await.unwrap();
    let accepted = (first.await.unwrap().unwrap(), second.await.unwrap().unwrap());
    assert!(accepted.0 ^ accepted.1, "{accepted:?}");
    assert_eq!(log.inbox(&"run_1".into()).await.unwrap().len(), 1);
}

/// Spec: K1. Keys with the last character of Unicode behind the prefix are listed too, in the order of their bytes.
#[tokio::test(flavor = "multi_thread")]
async fn every_key_behind_a_prefix_is_listed() {
    let state = open(&server!().database().await).await.state();
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

/// Removes the old value between the two statements of a write.
const REMOVED: &str = "CREATE FUNCTION backstop.remove_old() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
    DELETE FROM backstop.state WHERE value = '\"old\"'; RETURN NULL; END $$; \
    CREATE TRIGGER removed AFTER INSERT ON backstop.state \
    FOR EACH STATEMENT EXECUTE FUNCTION backstop.remove_old()";

/// Spec: K1
#[tokio::test(flavor = "multi_thread")]
async fn value_that_has_gone_is_no_conflict() {
    let url = server!().database().await;
    let state = open(&url).await.state();
    let write = |value: &str| StateWrite::new(Scope::Global, "k", json!(value));
    state.write(write("old")).await.unwrap();
    sqlx::raw_sql(REMOVED).execute(&mut connection(&url).await).await.unwrap();
    state.write(write("new").expecting(Expected::Absent)).await.unwrap();
    let refused = state.write(write("newer").expecting(Expected::Absent)).await;
    assert!(matches!(refused, Err(StateError::Conflict { found: Some(_), .. })), "{refused:?}");
}

/// Leaves 44 of 300 values to a scope, and then refuses to delete.
const HALF_CLEARED: &str = "INSERT INTO backstop.state (scope, key, version, at, value, words) \
    SELECT 'global', 'k' || n, n, 1, '1', '{}' FROM generate_series(1, 300) AS n; \
    CREATE FUNCTION backstop.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
    IF (SELECT count(*) FROM backstop.state) < 300 THEN RAISE EXCEPTION 'full' USING ERRCODE = 'disk_full'; END IF; \
    RETURN NULL; END $$; CREATE TRIGGER refuse BEFORE DELETE ON backstop.state \
    FOR EACH STATEMENT EXECUTE FUNCTION backstop.refuse()";

/// What was cleared part of the way had an effect.
#[tokio::test(flavor = "multi_thread")]
async fn half_cleared_scope_had_an_effect() {
    let server = server!();
    let url = server.database().await;
    let database = open(&url).await;
    let mut other = connection(&url).await;
    sqlx::raw_sql(HALF_CLEARED).execute(&mut other).await.unwrap();
    let clear = async || database.state().clear(&Scope::Global).await.unwrap_err().effect();
    assert_eq!(clear().await, Effect::Unknown);
    assert_eq!(clear().await, Effect::None, "nothing was removed");
    database.close().await;
}
