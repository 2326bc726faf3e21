//! The contract of every state store.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use backstop_clock::{Clock, VirtualClock};
use futures_util::future::join_all;
use layer0::error::StateError;
use layer0::failure::Failure;
use layer0::state::{
    Added, Expected, Scope, StateAdd, StateQuery, StateValue, StateWrite, Versioned,
};
use layer0::{JsonText, StateStore, Timestamp};
use serde_json::{Value, json};

use super::suite::{Suite, checks};

/// A store with its clock.
struct Held {
    store: Arc<dyn StateStore>,
    clock: VirtualClock,
}

/// Checks state stores against the contract of [`StateStore`]. `make` makes an empty store with this clock for each
/// trial.
///
/// ```
/// use std::sync::Arc;
///
/// use backstop_state::MemoryStateStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let make = async |clock| Arc::new(MemoryStateStore::new().clock(clock)) as _;
/// backstop_testkit::contract::state_store(make).check().await;
/// # }
/// ```
///
/// Specification: K1.
pub fn state_store(
    make: impl AsyncFn(Arc<dyn Clock>) -> Arc<dyn StateStore> + Send + Sync + 'static,
) -> Suite {
    let make = Arc::new(make);
    let held = async move || {
        let clock = VirtualClock::starting_at(Timestamp::from_millis(1_767_225_600_000));
        Held { store: make(Arc::new(clock.clone())).await, clock }
    };
    Suite::new(
        held,
        checks![
            begins_empty,
            reads_what_was_written,
            keeps_any_json,
            keeps_numbers_as_written,
            keeps_scopes_apart,
            gives_no_version_twice,
            lists_the_newest_first,
            writes_only_over_what_was_expected,
            writes_only_where_nothing_is,
            removes_only_what_was_expected,
            forgets_what_has_expired,
            keeps_what_is_written_anew,
            lists_in_the_order_of_keys,
            lists_by_prefix,
            lists_page_by_page,
            lists_backwards,
            lists_scopes,
            finds_words,
            finds_the_best_fit_first,
            finds_the_newest_of_equals_first,
            finds_under_a_prefix,
            finds_no_text_that_is_gone,
            takes_any_text_to_find,
            refuses_keys,
            refuses_what_is_too_large,
            refuses_what_is_too_deep,
            takes_secrets_out,
            empties_a_scope,
            loses_no_update_of_many_writers,
            adds_to_a_number,
            adds_only_up_to_a_bound,
            adds_to_nothing_but_numbers,
            loses_no_addition_of_many,
            gives_a_lock_to_one_of_many,
            writes_a_dropped_value_whole_or_not_at_all,
        ],
    )
}

impl Held {
    async fn put(&self, scope: &Scope, key: &str, value: impl Into<StateValue>) -> u64 {
        self.store.write(StateWrite::new(scope.clone(), key, value)).await.expect("it is written")
    }

    async fn try_put(
        &self,
        key: &str,
        value: impl Into<StateValue>,
        expected: Expected,
    ) -> Result<u64, StateError> {
        let write = StateWrite::new(Scope::Global, key, value).expecting(expected);
        self.store.write(write).await
    }

    async fn get(&self, scope: &Scope, key: &str) -> Option<Versioned> {
        self.store.read(scope, key).await.expect("it is read")
    }

    async fn value(&self, key: &str) -> Option<Value> {
        self.get(&Scope::Global, key).await.map(|found| found.value.value())
    }

    async fn list(&self, query: StateQuery) -> Vec<String> {
        let listed = self.store.list(query).await.expect("it is listed");
        listed.into_iter().map(|(key, _)| key).collect()
    }

    async fn find(&self, text: &str) -> Vec<String> {
        self.search(everything().limit(10), text).await
    }

    async fn search(&self, query: StateQuery, text: &str) -> Vec<String> {
        let found = self.store.search(query, text).await.expect("it is searched");
        found.into_iter().map(|(key, _)| key).collect()
    }
}

fn everything() -> StateQuery {
    StateQuery::new(Scope::Global)
}

fn scopes() -> Vec<Scope> {
    let own = Scope::custom("tenant", "acme").expect("a scope");
    vec![
        Scope::Global,
        Scope::Session("x".into()),
        Scope::Agent("x".into()),
        Scope::Run("x".into()),
        own,
    ]
}

async fn begins_empty(held: Held) {
    assert_eq!(held.get(&Scope::Global, "k").await, None);
    assert!(held.list(everything()).await.is_empty());
    assert!(held.find("k").await.is_empty());
    let removed = held.store.delete(&Scope::Global, "k", Expected::Any).await;
    assert!(!removed.expect("there is nothing to remove"));
}

async fn reads_what_was_written(held: Held) {
    let first = held.put(&Scope::Global, "k", json!({ "a": [1, "two"] })).await;
    let now = held.clock.now();
    let found = held.get(&Scope::Global, "k").await.expect("a value");
    assert_eq!(found, Versioned::new(json!({ "a": [1, "two"] }), first, now));
    held.clock.set_time_of_day(5_000);
    let next = held.put(&Scope::Global, "k", json!(2)).await;
    assert!(next > first, "{next} after {first}");
    let found = held.get(&Scope::Global, "k").await.expect("a value");
    assert_eq!((found.value.value(), found.version), (json!(2), next));
    assert_eq!(found.written_at, held.clock.now());
}

async fn keeps_any_json(held: Held) {
    for value in [
        Value::Null,
        json!(""),
        json!("\u{0}\u{2028} \"quoted\" \u{1F600}"),
        json!(u64::MAX),
        json!(-0.5),
        json!([[], {}, { "": [false] }]),
        json!("x".repeat(900_000)),
    ] {
        held.put(&Scope::Global, "any", value.clone()).await;
        assert_eq!(held.value("any").await, Some(value));
    }
}

/// Texts that a tree of 64-bit numbers would change.
async fn keeps_numbers_as_written(held: Held) {
    let nested = "[".repeat(99) + "1.10" + &"]".repeat(99);
    for text in [
        "1.10",
        "-0",
        "-0.0",
        "1E2",
        "1e-400",
        "1234567890123456789012345678901234567890",
        r#"{"price":[3.10,18446744073709551616]}"#,
        r#""\u0000\u001b[31m""#,
        &nested,
    ] {
        let value = JsonText::parse(text).expect("it is JSON");
        held.put(&Scope::Global, "n", value.clone()).await;
        let found = held.get(&Scope::Global, "n").await.expect("a value");
        assert_eq!(found.value, value);
        let listed = held.store.list(everything()).await.expect("it is listed");
        assert!(listed.iter().all(|(_, found)| found.value == value), "{text}");
    }
}

async fn keeps_scopes_apart(held: Held) {
    for (number, scope) in scopes().iter().enumerate() {
        held.put(scope, "k", json!(number)).await;
    }
    for (number, scope) in scopes().iter().enumerate() {
        assert_eq!(
            held.get(scope, "k").await.map(|it| it.value.value()),
            Some(json!(number)),
            "{scope}"
        );
        assert_eq!(held.list(StateQuery::new(scope.clone())).await, ["k"]);
    }
}

async fn lists_the_newest_first(Held { store, .. }: Held) {
    let write = |key: &str| store.write(StateWrite::new(Scope::Global, key, json!(key)));
    for key in ["memory/c", "other", "memory/a", "memory/d", "memory/b", "memory/c"] {
        write(key).await.expect("the value is small");
    }
    let query = StateQuery::new(Scope::Global).prefix("memory/").newest_first();
    let listed = store.list(query.limit(3)).await.expect("the store is open");
    let keys: Vec<&str> = listed.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["memory/c", "memory/b", "memory/d"], "what was written last is first");
}

async fn gives_no_version_twice(held: Held) {
    let first = held.put(&Scope::Global, "k", json!(1)).await;
    assert!(held.store.delete(&Scope::Global, "k", Expected::Any).await.expect("it is removed"));
    let next = held.put(&Scope::Global, "k", json!(1)).await;
    assert!(next > first, "{next} after {first}");
    let late = held.try_put("k", json!("late"), Expected::Version(first)).await;
    assert_eq!(late.expect_err("another value").code(), "state.conflict");
}

async fn writes_only_over_what_was_expected(held: Held) {
    let first = held.put(&Scope::Global, "k", json!(1)).await;
    let next = held.try_put("k", json!(2), Expected::Version(first)).await.expect("it is the same");
    match held.try_put("k", json!(3), Expected::Version(first)).await {
        Err(error @ StateError::Conflict { found: Some(found), .. }) => {
            assert_eq!(found, next, "the version that is stored");
            assert!(!error.is_retryable());
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(held.value("k").await, Some(json!(2)));
    match held.try_put("other", json!(1), Expected::Version(first)).await {
        Err(StateError::Conflict { found: None, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(held.value("other").await, None);
}

async fn writes_only_where_nothing_is(held: Held) {
    let first = held.try_put("k", json!(1), Expected::Absent).await.expect("there is nothing");
    match held.try_put("k", json!(2), Expected::Absent).await {
        Err(StateError::Conflict { found: Some(found), .. }) => assert_eq!(found, first),
        other => panic!("{other:?}"),
    }
    assert_eq!(held.value("k").await, Some(json!(1)));
}

async fn removes_only_what_was_expected(held: Held) {
    let first = held.put(&Scope::Global, "k", json!(1)).await;
    let next = held.put(&Scope::Global, "k", json!(2)).await;
    let delete = |expected| held.store.delete(&Scope::Global, "k", expected);
    let error = delete(Expected::Version(first)).await.expect_err("another value");
    assert_eq!(error.code(), "state.conflict");
    assert_eq!(held.value("k").await, Some(json!(2)));
    assert!(delete(Expected::Version(next)).await.expect("it is removed"));
    assert_eq!(held.value("k").await, None);
    let error = delete(Expected::Version(next)).await.expect_err("nothing is there");
    assert!(matches!(error, StateError::Conflict { found: None, .. }), "{error:?}");
}

async fn put_for(held: &Held, key: &str, seconds: u64) -> u64 {
    let write = StateWrite::new(Scope::Global, key, json!("for a time"));
    let write = write.expires_after(Duration::from_secs(seconds));
    held.store.write(write).await.expect("it is written")
}

async fn forgets_what_has_expired(held: Held) {
    put_for(&held, "short", 10).await;
    put_for(&held, "long", 60).await;
    let found = held.get(&Scope::Global, "short").await.expect("a value");
    assert_eq!(found.expires_at, Some(held.clock.now().after(Duration::from_secs(10))));
    held.clock.set_time_of_day(10_000);
    assert_eq!(held.value("short").await, None);
    assert_eq!(held.list(everything()).await, ["long"]);
    assert_eq!(held.find("time").await, ["long"]);
    let removed = held.store.delete(&Scope::Global, "short", Expected::Any).await;
    assert!(!removed.expect("there is nothing to remove"));
    put_for(&held, "short", 10).await;
    held.clock.set_time_of_day(9_000);
    held.try_put("short", json!(1), Expected::Absent).await.expect_err("there is a value");
    held.clock.set_time_of_day(1_000);
    held.try_put("short", json!(1), Expected::Absent).await.expect("it has expired");
}

async fn keeps_what_is_written_anew(held: Held) {
    put_for(&held, "k", 10).await;
    held.put(&Scope::Global, "k", json!("stays")).await;
    held.clock.set_time_of_day(100_000);
    assert_eq!(held.value("k").await, Some(json!("stays")));
}

async fn lists_in_the_order_of_keys(held: Held) {
    let keys = ["b", "a", "B", "ä", "a/2", "a/10", "%", "a_"];
    for key in keys {
        held.put(&Scope::Global, key, json!(key)).await;
    }
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    assert_eq!(held.list(everything()).await, sorted);
    let listed = held.store.list(everything()).await.expect("it is listed");
    assert!(listed.iter().all(|(key, found)| found.value == json!(key)));
}

async fn lists_by_prefix(held: Held) {
    for key in ["a", "a/1", "a/2", "a%", "a_", "b/1", "A/1", "\u{10FFFF}z"] {
        held.put(&Scope::Global, key, json!(1)).await;
    }
    assert_eq!(held.list(everything().prefix("a/")).await, ["a/1", "a/2"]);
    assert_eq!(held.list(everything().prefix("a%")).await, ["a%"]);
    assert_eq!(held.list(everything().prefix("a_")).await, ["a_"]);
    assert_eq!(held.list(everything().prefix("\u{10FFFF}")).await, ["\u{10FFFF}z"]);
    assert!(held.list(everything().prefix("c")).await.is_empty());
}

async fn lists_page_by_page(held: Held) {
    for number in 0..7 {
        held.put(&Scope::Global, &format!("k{number}"), json!(number)).await;
        held.put(&Scope::Global, &format!("l{number}"), json!(number)).await;
    }
    let (mut all, mut query) = (Vec::new(), everything().prefix("k").limit(3));
    loop {
        let page = held.list(query.clone()).await;
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 3);
        query = query.after(last.clone());
        all.extend(page);
    }
    assert_eq!(all, ["k0", "k1", "k2", "k3", "k4", "k5", "k6"]);
    assert_eq!(held.list(everything().prefix("l").after("a").limit(1)).await, ["l0"]);
}

async fn lists_backwards(held: Held) {
    for key in ["a/1", "a/2", "a/3", "b"] {
        held.put(&Scope::Global, key, json!(1)).await;
    }
    let backwards = || everything().backwards();
    assert_eq!(held.list(backwards()).await, ["b", "a/3", "a/2", "a/1"]);
    assert_eq!(held.list(backwards().prefix("a/").limit(2)).await, ["a/3", "a/2"]);
    assert_eq!(held.list(backwards().prefix("a/").after("a/2")).await, ["a/1"]);
}

async fn lists_scopes(held: Held) {
    let none = held.store.scopes(None, 10).await.expect("they are listed");
    assert!(none.is_empty());
    for scope in scopes() {
        held.put(&scope, "k", json!(1)).await;
        held.put(&scope, "l", json!(1)).await;
    }
    let mut sorted = scopes();
    sorted.sort_by_key(ToString::to_string);
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = held.store.scopes(after.as_ref(), 2).await.expect("they are listed");
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 2);
        after = Some(last.clone());
        all.extend(page);
    }
    assert_eq!(all, sorted);
}

async fn finds_under_a_prefix(held: Held) {
    for key in ["a/1", "a/2", "b/1"] {
        held.put(&Scope::Global, key, json!("a word")).await;
    }
    assert_eq!(held.search(everything().prefix("b/").limit(1), "word").await, ["b/1"]);
    assert_eq!(held.search(everything().prefix("a/"), "word").await, ["a/2", "a/1"]);
}

async fn finds_words(held: Held) {
    held.put(&Scope::Global, "disk", json!({ "note": "The disk is FULL", "size": [10] })).await;
    held.put(&Scope::Global, "net", json!(["a network", { "deep": "cable-7 is loose" }])).await;
    held.put(&Scope::Session("x".into()), "disk", json!("disk")).await;
    assert_eq!(held.find("full").await, ["disk"]);
    assert_eq!(held.find("CABLE").await, ["net"]);
    assert_eq!(held.find("net").await, ["net"], "its key, and no part of a word");
    assert!(held.find("work").await.is_empty());
}

async fn finds_the_best_fit_first(held: Held) {
    held.put(&Scope::Global, "both", json!("the red house")).await;
    for number in 0..3 {
        held.put(&Scope::Global, &format!("one-{number}"), json!("a house of stone")).await;
        held.put(&Scope::Global, &format!("none-{number}"), json!("nothing of the kind")).await;
    }
    let found = held.find("red house?").await;
    assert_eq!((found.len(), found.first().map(String::as_str)), (4, Some("both")));
    let few = held.search(everything().limit(2), "house").await;
    assert_eq!(few.len(), 2);
}

async fn finds_the_newest_of_equals_first(held: Held) {
    for key in ["a", "b", "c"] {
        held.put(&Scope::Global, key, json!("same words")).await;
    }
    held.put(&Scope::Global, "b", json!("same words")).await;
    assert_eq!(held.find("words").await, ["b", "c", "a"]);
}

async fn finds_no_text_that_is_gone(held: Held) {
    held.put(&Scope::Global, "a", json!("early")).await;
    held.put(&Scope::Global, "a", json!("late")).await;
    held.put(&Scope::Global, "b", json!("early")).await;
    held.store.delete(&Scope::Global, "b", Expected::Any).await.expect("it is removed");
    assert!(held.find("early").await.is_empty());
    assert_eq!(held.find("late").await, ["a"]);
}

async fn takes_any_text_to_find(held: Held) {
    held.put(&Scope::Global, "a", json!("and not near")).await;
    for text in ["", "  ", "\"", "* OR (", "a:b", "x\u{0}y", "-near^2 {", "'; DROP TABLE state;--"]
    {
        let found = held.store.search(everything(), text).await;
        found.unwrap_or_else(|error| panic!("{text:?}: {error}"));
    }
    assert_eq!(held.find("NEAR(and)").await, ["a"]);
    assert!(held.find("neither").await.is_empty());
}

async fn refuses_keys(held: Held) {
    for key in [String::new(), "x".repeat(257), "a\nb".to_owned(), "a\u{0}".to_owned()] {
        let error = held.try_put(&key, json!(1), Expected::Any).await.expect_err("no key");
        assert_eq!(error.code(), "state.invalid_key", "{key:?}");
    }
    assert!(held.list(everything()).await.is_empty());
    let longest = "x".repeat(256);
    held.put(&Scope::Global, &longest, json!(1)).await;
    assert_eq!(held.value(&longest).await, Some(json!(1)));
}

async fn refuses_what_is_too_large(held: Held) {
    held.put(&Scope::Global, "k", json!("x".repeat(1024 * 1024 - 2))).await;
    let large = json!("x".repeat(1024 * 1024 - 1));
    let error = held.try_put("k", large, Expected::Any).await.expect_err("a byte too many");
    assert!(
        matches!(error, StateError::TooLarge { bytes: 1_048_577, most: 1_048_576, .. }),
        "{error:?}"
    );
}

async fn refuses_what_is_too_deep(held: Held) {
    let deep = (0..101).fold(json!(1), |inner, _| json!([inner]));
    let text = JsonText::from_value(&deep).expect("a record holds it");
    for value in [StateValue::from(text), deep.into()] {
        let error = held.try_put("k", value, Expected::Any).await.expect_err("it is too deep");
        assert_eq!(error.code(), "state.serialization");
        assert!(error.to_string().contains("nested deeper than 100 levels"), "{error}");
        assert_eq!(held.value("k").await, None);
    }
}

async fn takes_secrets_out(held: Held) {
    let secret = "postgres://ann:hunter2@db/prod";
    held.put(&Scope::Global, "k", json!({ "url": [secret], secret: 1 })).await;
    let kept = held.value("k").await.expect("a value").to_string();
    assert!(!kept.contains("hunter2"), "{kept}");
    assert!(held.find("hunter2").await.is_empty());
}

async fn empties_a_scope(held: Held) {
    let session = Scope::Session("s-1".into());
    for key in ["a", "b"] {
        held.put(&session, key, json!("gone")).await;
        held.put(&Scope::Global, key, json!("stays")).await;
    }
    assert_eq!(held.store.clear(&session).await.expect("it is emptied"), 2);
    assert_eq!(held.store.clear(&session).await.expect("it is emptied"), 0);
    assert!(held.list(StateQuery::new(session.clone())).await.is_empty());
    assert!(held.search(StateQuery::new(session), "gone").await.is_empty());
    assert_eq!(held.list(everything()).await, ["a", "b"]);
}

/// Adds one to a counter while other writers do so too.
async fn count_up(held: &Held) {
    loop {
        let found = held.get(&Scope::Global, "count").await;
        let (count, expected) = match &found {
            Some(found) => {
                (found.value.read::<u64>().expect("a number"), Expected::Version(found.version))
            }
            None => (0, Expected::Absent),
        };
        match held.try_put("count", json!(count + 1), expected).await {
            Ok(_) => return,
            Err(StateError::Conflict { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

async fn adds_to_a_number(held: Held) {
    let add = |amount| StateAdd::new(Scope::Global, "n", amount);
    assert_eq!(held.store.add(add(5)).await.expect("it is added"), Added::Done(5));
    let first = held.get(&Scope::Global, "n").await.expect("a number");
    assert_eq!((first.value.value(), first.expires_at), (json!(5), None));
    let sum = held.store.add(add(-2).expires_after(Duration::from_secs(10))).await;
    assert_eq!(sum.expect("it is added"), Added::Done(3));
    let second = held.get(&Scope::Global, "n").await.expect("a number");
    assert!(second.version > first.version, "each addition is a version of its own");
    let until = held.clock.now().after(Duration::from_secs(10));
    assert_eq!((second.value.value(), second.expires_at), (json!(3), Some(until)));
    assert_eq!(
        held.store.add(add(-9)).await.expect("it is added"),
        Added::Done(0),
        "0 is the least"
    );
    held.store.add(add(7).expires_after(Duration::from_secs(10))).await.expect("it is added");
    held.clock.set_time_of_day(10_000);
    assert_eq!(
        held.store.add(add(1)).await.expect("it is added"),
        Added::Done(1),
        "it had expired"
    );
    let elsewhere = held.store.add(StateAdd::new(Scope::Agent("x".into()), "n", 4)).await;
    assert_eq!(elsewhere.expect("it is added"), Added::Done(4));
    let most = held.store.add(add(i64::MAX)).await.expect("it is added");
    assert_eq!(most, Added::Done(i64::MAX.unsigned_abs()), "there is a most");
}

async fn adds_only_up_to_a_bound(held: Held) {
    let add = |amount, bound| StateAdd::new(Scope::Global, "n", amount).unless_above(bound);
    assert_eq!(held.store.add(add(5, 0)).await.expect("it is added"), Added::Done(5));
    assert_eq!(held.store.add(add(5, 5)).await.expect("it is added"), Added::Done(10));
    let before = held.get(&Scope::Global, "n").await;
    assert_eq!(held.store.add(add(1, 9)).await.expect("it is refused"), Added::Refused(10));
    assert_eq!(held.get(&Scope::Global, "n").await, before, "nothing was written");
    assert_eq!(held.store.add(add(-1, 9)).await.expect("it is refused"), Added::Refused(10));
}

async fn adds_to_nothing_but_numbers(held: Held) {
    for value in [json!("5"), json!({"n": 5}), json!(-5), json!(1.5), json!(5.0)] {
        held.put(&Scope::Global, "n", value.clone()).await;
        let refused = held.store.add(StateAdd::new(Scope::Global, "n", 1)).await;
        assert!(matches!(refused, Err(StateError::Serialization(_))), "{value}: {refused:?}");
        assert_eq!(held.value("n").await, Some(value));
    }
    held.put(&Scope::Global, "n", json!(5)).await;
    let sum = held.store.add(StateAdd::new(Scope::Global, "n", 1)).await;
    assert_eq!(sum.expect("it is added"), Added::Done(6));
}

/// Ten concurrent additions; six of them have room.
async fn loses_no_addition_of_many(held: Held) {
    let add = || StateAdd::new(Scope::Global, "n", 5).unless_above(25);
    let added = join_all((0..10).map(|_| held.store.add(add()))).await;
    let mut done: Vec<u64> = Vec::new();
    for added in added {
        match added.expect("it is added or refused") {
            Added::Done(sum) => done.push(sum),
            refused => assert_eq!(refused, Added::Refused(30)),
        }
    }
    done.sort_unstable();
    assert_eq!(done, [5, 10, 15, 20, 25, 30]);
    assert_eq!(held.value("n").await, Some(json!(30)));
}

async fn loses_no_update_of_many_writers(held: Held) {
    join_all((0..64).map(|_| count_up(&held))).await;
    assert_eq!(held.value("count").await, Some(json!(64)));
}

async fn gives_a_lock_to_one_of_many(held: Held) {
    let tries = (0..64).map(|number| held.try_put("lock", json!(number), Expected::Absent));
    let won = join_all(tries).await;
    let won: Vec<_> = (0..64).zip(&won).filter(|(_, result)| result.is_ok()).collect();
    assert_eq!(won.len(), 1);
    assert_eq!(held.value("lock").await, won.first().map(|(number, _)| json!(number)));
}

async fn writes_a_dropped_value_whole_or_not_at_all(held: Held) {
    {
        let mut write = pin!(held.try_put("k", json!({ "a": 1, "b": 2 }), Expected::Any));
        let _ = write.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
    held.put(&Scope::Global, "next", json!(1)).await;
    let found = held.value("k").await;
    assert!(found.is_none() || found == Some(json!({ "a": 1, "b": 2 })), "{found:?}");
    assert_eq!(held.find("k").await.is_empty(), found.is_none());
}
