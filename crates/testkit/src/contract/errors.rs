//! The contract of every error store.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use backstop_error_store::{
    CountBy, ErrorFilter, ErrorRecord, ErrorStore, Lookup, NewError, Origin, Retention,
    StoredError, readable,
};
use backstop_redact::Redactor;
use futures_util::future::join_all;
use layer0::id::{ErrorId, RunId, SessionId};
use layer0::{Code, Timestamp, code};

use super::suite::{Suite, checks};

type Errors = Arc<dyn ErrorStore>;

/// Checks error stores against the contract of [`ErrorStore`]. `make` makes an empty store for each trial.
///
/// ```
/// use std::sync::Arc;
///
/// use backstop_error_store::MemoryErrorStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// backstop_testkit::contract::error_store(async || Arc::new(MemoryErrorStore::new()) as _).check().await;
/// # }
/// ```
///
/// Specification: S1, S2, S3, S8, S10, S14.
pub fn error_store(make: impl AsyncFn() -> Errors + Send + Sync + 'static) -> Suite {
    Suite::new(
        make,
        checks![
            keeps_an_error,
            is_its_sessions,
            counts_repeats,
            makes_ids,
            lists_newest_first,
            filters,
            lists_what_a_run_met,
            prunes_by_age,
            prunes_the_longest_unseen,
            prunes_by_bytes,
            keeps_what_is_held,
            stores_anew,
            keeps_copies,
            keeps_what_expired,
            counts,
            counts_what_is_asked_for,
            keeps_any_text,
            counts_repeats_at_once,
            stores_many_at_once,
            stores_a_dropped_error_whole_or_not_at_all,
        ],
    )
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_millis(1_767_225_600_000 + second * 1_000)
}

fn error(session: &str, run: &str, tool: &str, second: i64, text: &str) -> NewError {
    let origin = Origin::new(at(second), session, run, "c1", tool);
    let reason = Code::new(code::TOOL_EXECUTION_FAILED);
    NewError::new(origin, reason, Some("SQL_ERROR"), text, &Redactor::new())
}

async fn put(store: &Errors, session: &str, second: i64, text: &str) -> StoredError {
    store.store(error(session, "run_1", "sql", second, text)).await.expect("it is stored")
}

async fn get(store: &Errors, session: &str, id: &ErrorId) -> Lookup<ErrorRecord> {
    store.get(&SessionId::from(session), id).await.expect("it is read")
}

async fn listed(store: &Errors, filter: ErrorFilter) -> Vec<String> {
    let errors = store.list(filter).await.expect("errors are listed");
    errors.iter().map(|error| readable(error.raw())).collect()
}

async fn prune(store: &Errors, retention: Retention, second: i64) -> (u64, u64) {
    let pruned = store.prune(retention, at(second)).await.expect("it is pruned");
    (pruned.rows, pruned.bytes)
}

async fn keeps_an_error(store: Errors) {
    let json = "{\"b\": 1,  \"a\":\t[1.0, 2e3], \"message\": \"bad\"}";
    let new = error("s", "run_1", "sql", 0, json);
    let stored = store.store(new.clone()).await.expect("it is stored");
    let found = get(&store, "s", &stored.id).await.into_item().expect("it is found");
    assert_eq!(found, new.into_record(stored.id.clone()));
    assert_eq!(&**found.raw(), json, "byte for byte");
    let for_people = store.find(&stored.id).await.expect("it is read");
    assert_eq!(for_people.into_item(), Some(found));
}

async fn is_its_sessions(store: Errors) {
    let stored = put(&store, "s", 0, "boom").await;
    assert_eq!(get(&store, "other", &stored.id).await, Lookup::Missing);
    assert_eq!(get(&store, "s", &"err_20260101_000000_zzzzzz".into()).await, Lookup::Missing);
    let odd = put(&store, "s'; DROP TABLE errors; --", 1, "boom").await;
    assert!(get(&store, "s'; DROP TABLE errors; --", &odd.id).await.into_item().is_some());
}

async fn counts_repeats(store: Errors) {
    let first = put(&store, "s", 0, "boom").await;
    let again = store.store(error("s", "run_2", "sql", 5, "boom")).await.expect("it is stored");
    assert_eq!((&again.id, first.occurrences, again.occurrences), (&first.id, 1, 2));
    // A late occurrence does not make the error older.
    put(&store, "s", 3, "boom").await;
    let found = get(&store, "s", &first.id).await.into_item().expect("it is found");
    assert_eq!((found.occurrences(), found.at(), found.last_at()), (3, at(0), at(5)));
    assert_ne!(put(&store, "other", 6, "boom").await.id, first.id, "another session's is another");
    assert_ne!(put(&store, "s", 7, "bang").await.id, first.id);
    let other_tool = store.store(error("s", "run_1", "web", 8, "boom")).await;
    assert_ne!(other_tool.expect("it is stored").id, first.id);
}

async fn makes_ids(store: Errors) {
    let mut ids = Vec::new();
    for number in 0..100 {
        ids.push(put(&store, "s", 0, &format!("error {number}")).await.id);
    }
    for id in &ids {
        assert!(id.as_str().starts_with("err_20260101_000000_") && id.as_str().len() == 26, "{id}");
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 100, "no error is lost to an id");
}

async fn lists_newest_first(store: Errors) {
    for (second, text) in [(5, "b"), (1, "a"), (9, "d"), (5, "c")] {
        put(&store, "s", second, text).await;
    }
    assert_eq!(listed(&store, ErrorFilter::new()).await, ["d", "c", "b", "a"]);
    assert_eq!(listed(&store, ErrorFilter::new().limit(2)).await, ["d", "c"]);
    assert!(listed(&store, ErrorFilter::new().limit(0)).await.is_empty());
}

async fn filters(store: Errors) {
    for (session, tool, second, text) in
        [("a", "sql", 1, "1"), ("a", "web", 2, "2"), ("b", "sql", 3, "3"), ("b", "web", 4, "4")]
    {
        store.store(error(session, "run_1", tool, second, text)).await.expect("it is stored");
    }
    let all = ErrorFilter::new;
    for (filter, expected) in [
        (all().session("a"), vec!["2", "1"]),
        (all().tool("web"), vec!["4", "2"]),
        (all().session("b").tool("sql"), vec!["3"]),
        (all().from(at(2)), vec!["4", "3", "2"]),
        (all().to(at(2)), vec!["1"]),
        (all().from(at(2)).to(at(4)), vec!["3", "2"]),
        (all().run("run_1").session("a").from(at(2)), vec!["2"]),
        (all().run("run_2"), vec![]),
        (all().session("a").limit(1), vec!["2"]),
        (all().reason("tool.execution_failed"), vec!["4", "3", "2", "1"]),
        (all().reason("tool.execution"), vec![]),
        (all().reason("tool.e*").tool("web"), vec!["4", "2"]),
        (all().run("run_1").reason("tool.*").tool("web"), vec!["4", "2"]),
        (all().reason("provider.*"), vec![]),
        (all().runs(["run_2", "run_1"]).tool("web").limit(1), vec!["4"]),
        (all().runs(["run_2", "run_3"]), vec![]),
        (all().runs(Vec::<RunId>::new()), vec![]),
        (all().id_prefix("err_20260101_000003"), vec!["3"]),
        (all().id_prefix("err_20260101_00000"), vec!["4", "3", "2", "1"]),
        (all().id_prefix("err_2026010_"), vec![]),
    ] {
        assert_eq!(listed(&store, filter.clone()).await, expected, "{filter:?}");
    }
}

async fn lists_what_a_run_met(store: Errors) {
    put(&store, "s", 1, "first").await;
    put(&store, "s", 2, "not met again").await;
    store.store(error("s", "run_2", "sql", 3, "first")).await.expect("it is stored");
    store.store(error("s", "run_2", "sql", 4, "second")).await.expect("it is stored");
    assert_eq!(listed(&store, ErrorFilter::new().run("run_2")).await, ["second", "first"]);
    assert_eq!(listed(&store, ErrorFilter::new().run("run_1")).await, ["not met again", "first"]);
    let both = ErrorFilter::new().runs(["run_1", "run_2"]);
    assert_eq!(
        listed(&store, both.clone()).await,
        ["second", "not met again", "first"],
        "once each"
    );
    assert_eq!(listed(&store, both.limit(2)).await, ["second", "not met again"]);
}

async fn prunes_by_age(store: Errors) {
    let old = put(&store, "s", 0, "old").await;
    let seen = put(&store, "s", 0, "seen again").await;
    put(&store, "s", 50, "seen again").await;
    let edge = put(&store, "s", 40, "at the edge").await;
    let retention = Retention::NONE.max_age(Duration::from_secs(60));
    assert_eq!(prune(&store, retention, 100).await.0, 1);
    assert_eq!(get(&store, "s", &old.id).await, Lookup::Expired, "never: not found");
    assert!(store.find(&old.id).await.expect("it is read").is_expired());
    assert_eq!(get(&store, "other", &old.id).await, Lookup::Missing);
    for kept in [seen, edge] {
        assert!(get(&store, "s", &kept.id).await.into_item().is_some());
    }
}

async fn prunes_the_longest_unseen(store: Errors) {
    for (second, text) in [(1, "a"), (2, "b"), (3, "c"), (3, "d"), (4, "e")] {
        put(&store, "s", second, text).await;
    }
    put(&store, "s", 5, "a").await;
    assert_eq!(prune(&store, Retention::NONE.max_rows(3), 9).await.0, 2);
    let left = listed(&store, ErrorFilter::new()).await;
    assert_eq!(left, ["e", "d", "a"], "of one moment, the first stored goes");
    assert_eq!(prune(&store, Retention::NONE, 9).await, (0, 0));
}

async fn prunes_by_bytes(store: Errors) {
    let sizes = [(1, 400), (2, 100), (3, 300), (4, 100)];
    for (second, size) in sizes {
        let text = format!("[\"{}\"]", second.to_string().repeat(size - 4));
        put(&store, "s", second, &text).await;
    }
    assert_eq!(prune(&store, Retention::NONE.max_bytes(500), 9).await, (1, 400));
    assert_eq!(prune(&store, Retention::NONE.max_bytes(400), 9).await, (1, 100));
    assert_eq!(prune(&store, Retention::NONE.max_bytes(399), 9).await, (1, 300));
    assert_eq!(prune(&store, Retention::NONE.max_bytes(99), 9).await, (1, 100));
}

async fn keeps_what_is_held(store: Errors) {
    let held = put(&store, "held", 1, "a").await;
    let hold = store.hold(&"held".into());
    let second = store.hold(&"held".into());
    let free = put(&store, "free", 2, "b").await;
    let none = Retention::NONE.max_rows(0).max_age(Duration::from_secs(1));
    assert_eq!(prune(&store, none, 1_000).await.0, 1);
    assert!(get(&store, "held", &held.id).await.into_item().is_some(), "a run of it is open");
    assert_eq!(get(&store, "free", &free.id).await, Lookup::Expired);
    drop(hold);
    assert_eq!(prune(&store, none, 1_000).await.0, 0, "another run of it is open");
    drop(second);
    assert_eq!(prune(&store, none, 1_000).await.0, 1);
    assert_eq!(get(&store, "held", &held.id).await, Lookup::Expired);
}

async fn stores_anew(store: Errors) {
    let first = put(&store, "s", 1, "boom").await;
    prune(&store, Retention::NONE.max_rows(0), 2).await;
    let again = put(&store, "s", 3, "boom").await;
    assert_eq!(again.occurrences, 1);
    assert_ne!(again.id, first.id);
    assert_eq!(get(&store, "s", &first.id).await, Lookup::Expired);
}

async fn keeps_copies(store: Errors) {
    let here = put(&store, "s", 1, "boom").await;
    let copy =
        error("s", "run_0", "sql", 0, "boom").into_record("err_20251231_000000_abcdef".into());
    let copy = copy.with_occurrences(7, at(4), 0);
    store.keep(copy.clone()).await.expect("it is kept");
    store.keep(copy.clone()).await.expect("once is enough");
    let other = error("s", "run_9", "http", 2, "crash").into_record(copy.id().clone());
    store.keep(other.with_occurrences(9, at(5), 0)).await.expect("it is no error");
    let found = get(&store, "s", copy.id()).await.into_item().expect("a record refers to it");
    assert_eq!((found.occurrences(), found.last_at()), (7, at(4)), "an existing one is unchanged");
    assert_eq!(
        (found.raw(), found.run()),
        (copy.raw(), copy.run()),
        "an existing one is unchanged"
    );
    assert_eq!(put(&store, "s", 5, "boom").await.id, here.id, "the one that was here is counted");
    assert_eq!(store.list(ErrorFilter::new()).await.expect("they are listed").len(), 2);
    prune(&store, Retention::NONE.max_rows(1), 6).await;
    assert_eq!(get(&store, "s", copy.id()).await, Lookup::Expired);
    assert_eq!(put(&store, "s", 7, "boom").await.id, here.id, "the copy took nothing with it");
}

async fn keeps_what_expired(store: Errors) {
    let id = ErrorId::from("err_20251231_000000_abcdef");
    store.keep_expired(&"s".into(), &id).await.expect("it is kept");
    assert_eq!(get(&store, "s", &id).await, Lookup::Expired);
    assert_eq!(get(&store, "other", &id).await, Lookup::Missing);
    let there = put(&store, "s", 1, "boom").await;
    store.keep_expired(&"s".into(), &there.id).await.expect("it is no error");
    assert!(get(&store, "s", &there.id).await.into_item().is_some(), "what is there stays");
}

async fn counts(store: Errors) {
    let long = "first line\n".to_owned() + &"\"\u{1b}".repeat(500);
    put(&store, "s", 1, &long).await;
    put(&store, "s", 2, &long).await;
    put(&store, "s", 3, "short").await;
    store.store(error("s", "run_1", "web", 4, "short")).await.expect("it is stored");
    let stats = store.stats(None).await.expect("they are counted");
    let counted: Vec<_> = stats
        .iter()
        .map(|stats| (&*stats.tool, stats.errors, stats.occurrences, stats.chars_kept))
        .collect();
    // The summary has the first line; an escape sequence is not part of the error.
    assert_eq!(counted, [("sql", 2, 3, 2_002), ("web", 1, 1, 0)]);
    assert_eq!(stats[0].code.as_deref(), Some("SQL_ERROR"));
    assert_eq!(store.stats(Some(1)).await.expect("they are counted").len(), 1);
    prune(&store, Retention::NONE.max_rows(1), 9).await;
    let left = store.stats(None).await.expect("they are counted");
    assert_eq!(left.len(), 1, "what was taken away is not counted");
    assert_eq!((&*left[0].tool, left[0].errors), ("web", 1));
}

async fn counts_what_is_asked_for(store: Errors) {
    const DAY: i64 = 24 * 60 * 60;
    for (session, tool, second, text) in [
        ("s", "sql", 0, "one"),
        ("s", "sql", 1, "one"),
        ("s", "web", 2, "two"),
        ("s", "web", DAY, "three"),
        ("s", "web", DAY + 1, "four"),
    ] {
        store.store(error(session, "run_1", tool, second, text)).await.expect("it is stored");
    }
    let counted = async |filter, by| {
        let counts = store.count(filter, by).await.expect("they are counted");
        counts.into_iter().map(|it| (it.key, it.errors, it.occurrences)).collect::<Vec<_>>()
    };
    let row = |key: &str, errors, seen| (key.to_owned(), errors, seen);
    let (all, days) = (ErrorFilter::new, ["2026-01-01", "2026-01-02"]);
    let by_day = [row(days[0], 2, 3), row(days[1], 2, 2)];
    assert_eq!(counted(all(), CountBy::Day).await, by_day);
    let by_tool = [row("web", 3, 3), row("sql", 1, 2)];
    assert_eq!(counted(all(), CountBy::Tool).await, by_tool);
    assert_eq!(counted(all(), CountBy::Code).await, [row("tool.execution_failed", 4, 5)]);
    assert_eq!(counted(all().limit(1), CountBy::Tool).await, by_tool[..1], "of the groups");
    let later = all().from(at(DAY));
    assert_eq!(counted(later, CountBy::Tool).await, [row("web", 2, 2)]);
    assert_eq!(counted(all().tool("sql"), CountBy::Day).await, [row(days[0], 1, 2)]);
    assert_eq!(counted(all().runs(["run_1", "run_2"]), CountBy::Day).await, by_day);
    assert!(counted(all().run("run_2"), CountBy::Day).await.is_empty());
}

async fn keeps_any_text(store: Errors) {
    for text in ["", "\u{0}", "{broken", "\"quoted\"", "42", "ä\u{1f600}\r\n\t'", "null"] {
        let new = error("s", "run_1", "sql", 0, text);
        let stored = store.store(new.clone()).await.expect("it is stored");
        let found = get(&store, "s", &stored.id).await.into_item().expect("it is found");
        assert_eq!(found.raw(), new.raw(), "{text:?}");
    }
}

async fn counts_repeats_at_once(store: Errors) {
    let stores = (0..8).map(|second| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { put(&store, "s", second, "boom").await })
    });
    let stored = join_all(stores).await.into_iter().map(|it| it.expect("it does not panic"));
    let (ids, mut counts): (BTreeSet<_>, Vec<_>) =
        stored.map(|stored| (stored.id, stored.occurrences)).unzip();
    counts.sort_unstable();
    assert_eq!((ids.len(), counts), (1, (1..=8).collect()), "one error, seen eight times");
    let listed = store.list(ErrorFilter::new()).await.expect("they are listed");
    assert_eq!(listed.iter().map(|it| it.occurrences()).collect::<Vec<_>>(), [8]);
}

async fn stores_many_at_once(store: Errors) {
    let stores = (0..32).map(|number| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { put(&store, "s", 0, &format!("error {number}")).await.id })
    });
    for (number, id) in join_all(stores).await.into_iter().enumerate() {
        let id = id.expect("it does not panic");
        let found = get(&store, "s", &id).await.into_item().expect("it is found");
        assert_eq!(readable(found.raw()), format!("error {number}"), "each is found by its own id");
    }
}

/// The future is dropped after each possible number of polls.
async fn stores_a_dropped_error_whole_or_not_at_all(store: Errors) {
    for polls in 0..6 {
        let text = format!("error {polls}");
        {
            let mut storing = pin!(store.store(error("s", "run_1", "sql", 1, &text)));
            let mut cx = Context::from_waker(Waker::noop());
            for _ in 0..polls {
                if storing.as_mut().poll(&mut cx).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        let again = put(&store, "s", 2, &text).await;
        let found =
            get(&store, "s", &again.id).await.into_item().expect("what is counted is there");
        assert_eq!(readable(found.raw()), text);
        assert!(matches!(again.occurrences, 1 | 2), "seen {} times", again.occurrences);
        assert_eq!(found.occurrences(), again.occurrences);
    }
}
