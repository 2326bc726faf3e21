//! The contract of every result store.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use backstop_error_store::{
    Lookup, NewResult, Origin, ResultFilter, ResultRecord, ResultStore, Retention,
};
use backstop_redact::Redactor;
use futures_util::future::join_all;
use layer0::Timestamp;
use layer0::id::{ResultId, SessionId};

use super::suite::{Suite, checks};

type Results = Arc<dyn ResultStore>;

/// Checks result stores against the contract of [`ResultStore`]. `make` makes an empty store for each trial.
///
/// Specification: L1, L2, S10.
pub fn result_store(make: impl AsyncFn() -> Results + Send + Sync + 'static) -> Suite {
    Suite::new(
        make,
        checks![
            keeps_a_result,
            is_its_sessions,
            lists_newest_first,
            lists_what_is_asked_for,
            prunes_by_age,
            prunes_the_oldest,
            keeps_what_is_held,
            keeps_copies,
            keeps_what_expired,
            keeps_any_text,
            stores_many_at_once,
            stores_a_dropped_result_whole_or_not_at_all,
        ],
    )
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_millis(1_767_225_600_000 + second * 1_000)
}

fn result(session: &str, second: i64, body: &str) -> NewResult {
    NewResult::new(Origin::new(at(second), session, "run_1", "c1", "log"), body, &Redactor::new())
}

async fn put(store: &Results, session: &str, second: i64, body: &str) -> ResultId {
    store.put(result(session, second, body)).await.expect("it is stored")
}

async fn get(store: &Results, session: &str, id: &ResultId) -> Lookup<ResultRecord> {
    store.get(&SessionId::from(session), id).await.expect("it is read")
}

async fn prune(store: &Results, retention: Retention, second: i64) -> (u64, u64) {
    let pruned = store.prune(retention, at(second)).await.expect("it is pruned");
    (pruned.rows, pruned.bytes)
}

async fn keeps_a_result(store: Results) {
    let body = "line\r\n\u{0}ä\u{1f600} ".repeat(10_000);
    let new = result("s", 0, &body);
    let id = store.put(new.clone()).await.expect("it is stored");
    assert!(id.as_str().starts_with("res_20260101_000000_") && id.as_str().len() == 26, "{id}");
    assert_eq!(get(&store, "s", &id).await, Lookup::Found(new.clone().into_record(id.clone())));
    let for_people = store.find(&id).await.expect("it is read");
    assert_eq!(for_people, Lookup::Found(new.into_record(id)));
    let twice = put(&store, "s", 0, "same").await;
    assert_ne!(twice, put(&store, "s", 0, "same").await, "each has an id of its own");
}

async fn is_its_sessions(store: Results) {
    let id = put(&store, "s", 0, "whole").await;
    assert_eq!(get(&store, "other", &id).await, Lookup::Missing);
    assert_eq!(get(&store, "s", &"res_20260101_000000_zzzzzz".into()).await, Lookup::Missing);
}

/// Lists the lengths of the texts, which identify them.
async fn listed(store: &Results, filter: ResultFilter) -> Vec<u64> {
    let entries = store.list(filter).await.expect("results are listed");
    entries.iter().map(|entry| entry.bytes).collect()
}

async fn lists_newest_first(store: Results) {
    for (second, body) in [(2, "a"), (1, "bb"), (2, "ccc")] {
        put(&store, "s", second, body).await;
    }
    assert_eq!(listed(&store, ResultFilter::new()).await, [3, 1, 2], "then the last stored");
    assert_eq!(listed(&store, ResultFilter::new().limit(2)).await, [3, 1]);
    assert!(listed(&store, ResultFilter::new().limit(0)).await.is_empty());
}

async fn lists_what_is_asked_for(store: Results) {
    let mut ids = Vec::new();
    for (second, session, run, tool, body) in [
        (1, "a", "run_1", "log", "1"),
        (2, "a", "run_2", "web", "22"),
        (3, "b", "run_3", "log", "333"),
    ] {
        let origin = Origin::new(at(second), session, run, "c1", tool);
        let stored = store.put(NewResult::new(origin, body, &Redactor::new())).await;
        ids.push(stored.expect("it is stored").to_string());
    }
    let all = ResultFilter::new;
    for (filter, expected) in [
        (all(), vec![3, 2, 1]),
        (all().session("a"), vec![2, 1]),
        (all().run("run_2"), vec![2]),
        (all().tool("log"), vec![3, 1]),
        (all().tool("log").session("a"), vec![1]),
        (all().from(at(2)), vec![3, 2]),
        (all().from(at(2)).to(at(3)), vec![2]),
        (all().id_prefix(&ids[1][..25]), vec![2]),
        (all().id_prefix("res_20260101_00000"), vec![3, 2, 1]),
        (all().id_prefix("res_2026010_"), vec![]),
        (all().session("a").limit(1), vec![2]),
    ] {
        assert_eq!(listed(&store, filter.clone()).await, expected, "{filter:?}");
    }
}

async fn prunes_by_age(store: Results) {
    let old = put(&store, "s", 0, "old").await;
    let edge = put(&store, "s", 40, "at the edge").await;
    let retention = Retention::NONE.max_age(Duration::from_secs(60));
    assert_eq!(prune(&store, retention, 100).await, (1, 3));
    assert_eq!(get(&store, "s", &old).await, Lookup::Expired, "never: not found");
    assert_eq!(get(&store, "other", &old).await, Lookup::Missing);
    assert!(get(&store, "s", &edge).await.into_item().is_some());
}

async fn prunes_the_oldest(store: Results) {
    let mut ids = Vec::new();
    for (second, size) in [(3, 300), (1, 400), (2, 100), (3, 100)] {
        ids.push(put(&store, "s", second, &"x".repeat(size)).await);
    }
    assert_eq!(prune(&store, Retention::NONE.max_bytes(500), 9).await, (1, 400));
    assert_eq!(prune(&store, Retention::NONE.max_rows(1), 9).await, (2, 400));
    let mut left = Vec::new();
    for id in &ids {
        left.push(get(&store, "s", id).await.into_item().is_some());
    }
    assert_eq!(left, [false, false, false, true], "of one moment, the first stored goes");
}

async fn keeps_what_is_held(store: Results) {
    let id = put(&store, "s", 0, "whole").await;
    let hold = store.hold(&"s".into());
    let second = store.hold(&"s".into());
    let free = put(&store, "free", 1, "whole").await;
    assert_eq!(prune(&store, Retention::NONE.max_rows(0), 9).await.0, 1, "a run of it is open");
    assert_eq!(get(&store, "free", &free).await, Lookup::Expired);
    drop(hold);
    assert_eq!(prune(&store, Retention::NONE.max_rows(0), 9).await.0, 0, "another run is open");
    drop(second);
    assert_eq!(prune(&store, Retention::NONE.max_rows(0), 9).await.0, 1);
    assert_eq!(get(&store, "s", &id).await, Lookup::Expired);
}

async fn keeps_copies(store: Results) {
    let copy = result("s", 0, "whole").into_record("res_20251231_000000_abcdef".into());
    store.keep(copy.clone()).await.expect("it is kept");
    let other = result("s", 0, "other").into_record(copy.id.clone());
    store.keep(other).await.expect("what is there stays");
    assert_eq!(get(&store, "s", &copy.id.clone()).await, Lookup::Found(copy));
}

async fn keeps_what_expired(store: Results) {
    let id = ResultId::from("res_20251231_000000_abcdef");
    store.keep_expired(&"s".into(), &id).await.expect("it is kept");
    assert_eq!(get(&store, "s", &id).await, Lookup::Expired);
    assert_eq!(get(&store, "other", &id).await, Lookup::Missing);
    let there = put(&store, "s", 1, "whole").await;
    store.keep_expired(&"s".into(), &there).await.expect("it is no error");
    assert!(get(&store, "s", &there).await.into_item().is_some(), "what is there stays");
}

async fn keeps_any_text(store: Results) {
    for text in ["", "\u{0}", "{broken", "\"quoted\"", "42", "ä\u{1f600}\r\n\t'", "null", " x "] {
        let id = put(&store, "s", 0, text).await;
        let found = get(&store, "s", &id).await.into_item().expect("it is found");
        assert_eq!(&*found.body, text);
    }
}

async fn stores_many_at_once(store: Results) {
    let puts = (0..32).map(|number| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { put(&store, "s", 0, &format!("result {number}")).await })
    });
    for (number, id) in join_all(puts).await.into_iter().enumerate() {
        let id = id.expect("it does not panic");
        let found = get(&store, "s", &id).await.into_item().expect("it is found");
        assert_eq!(*found.body, format!("result {number}"), "each is found by its own id");
    }
}

/// The future is dropped after each possible number of polls.
async fn stores_a_dropped_result_whole_or_not_at_all(store: Results) {
    for polls in 0..6 {
        let mut putting = pin!(store.put(result("s", polls, "whole")));
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..polls {
            if putting.as_mut().poll(&mut cx).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    let last = put(&store, "s", 9, "last").await;
    assert!(get(&store, "s", &last).await.into_item().is_some());
    let (rows, bytes) = prune(&store, Retention::NONE.max_rows(0), 99).await;
    assert_eq!(bytes, (rows - 1) * 5 + 4, "{rows} results, each of them whole");
}
