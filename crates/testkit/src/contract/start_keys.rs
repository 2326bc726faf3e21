//! The contract of the keys of starts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{KeyBinding, StartKey, StartKeys};
use futures_util::future::join_all;
use layer0::Timestamp;
use layer0::id::RunId;
use layer0::operator::Task;

use super::suite::{Suite, checks};

type Keys = Arc<dyn StartKeys>;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Checks stores against the contract of [`StartKeys`]. `make` makes an empty store for each trial.
///
/// ```
/// use std::sync::Arc;
///
/// use backstop_event_log::MemoryLog;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// backstop_testkit::contract::start_keys(async || Arc::new(MemoryLog::new()) as _).check().await;
/// # }
/// ```
///
/// Specification: J2w.
pub fn start_keys(make: impl AsyncFn() -> Keys + Send + Sync + 'static) -> Suite {
    Suite::new(
        make,
        checks![
            binds_a_new_key,
            gives_the_first_run_again,
            refuses_another_input,
            keeps_the_keys_of_operators_apart,
            binds_for_one_of_many,
            keeps_a_key_for_a_day,
            forgets_a_key_without_a_run,
            keeps_any_text,
        ],
    )
}

fn now() -> Timestamp {
    Timestamp::from_millis(1_767_225_600_000)
}

fn asked(operator: &str, key: &str, text: &str) -> StartKey {
    let key = StartKey::new(operator, key, &Task::text(text), None, &BTreeMap::new());
    key.expect("a key that is good")
}

async fn bind(keys: &Keys, key: &StartKey, run: &str, at: Timestamp) -> KeyBinding {
    keys.bind(key, &RunId::from(run), at).await.expect("the store answers")
}

async fn binds_a_new_key(keys: Keys) {
    assert_eq!(bind(&keys, &asked("a", "k", "x"), "run_1", now()).await, KeyBinding::New);
}

async fn gives_the_first_run_again(keys: Keys) {
    let key = asked("a", "k", "x");
    bind(&keys, &key, "run_1", now()).await;
    for run in ["run_2", "run_3"] {
        assert_eq!(bind(&keys, &key, run, now()).await, KeyBinding::Earlier("run_1".into()));
    }
}

async fn refuses_another_input(keys: Keys) {
    bind(&keys, &asked("a", "k", "x"), "run_1", now()).await;
    let reused = bind(&keys, &asked("a", "k", "y"), "run_2", now()).await;
    assert!(
        matches!(reused, KeyBinding::Reused(differs) if differs.task && !differs.session),
        "the store says what differs: {reused:?}"
    );
    let again = bind(&keys, &asked("a", "k", "x"), "run_2", now()).await;
    assert_eq!(again, KeyBinding::Earlier("run_1".into()), "it stands for what it stood for");
}

async fn keeps_the_keys_of_operators_apart(keys: Keys) {
    bind(&keys, &asked("a", "k", "x"), "run_1", now()).await;
    assert_eq!(bind(&keys, &asked("b", "k", "y"), "run_2", now()).await, KeyBinding::New);
    assert_eq!(bind(&keys, &asked("a", "k2", "y"), "run_3", now()).await, KeyBinding::New);
}

async fn binds_for_one_of_many(keys: Keys) {
    let key = asked("a", "k", "x");
    let asking = (0..16).map(|number| {
        let (keys, key) = (&keys, &key);
        async move { (number, bind(keys, key, &format!("run_{number}"), now()).await) }
    });
    let bound = join_all(asking).await;
    let new: Vec<_> = bound.iter().filter(|(_, bound)| *bound == KeyBinding::New).collect();
    let [(first, _)] = new[..] else { panic!("one is new: {bound:?}") };
    let first = KeyBinding::Earlier(format!("run_{first}").into());
    assert_eq!(bound.iter().filter(|(_, bound)| *bound == first).count(), 15, "{bound:?}");
}

async fn keeps_a_key_for_a_day(keys: Keys) {
    let key = asked("a", "k", "x");
    bind(&keys, &key, "run_1", now()).await;
    let later = now().after(DAY - Duration::from_secs(60));
    bind(&keys, &asked("a", "other", "x"), "run_2", later).await;
    assert_eq!(bind(&keys, &key, "run_3", later).await, KeyBinding::Earlier("run_1".into()));
}

async fn forgets_a_key_without_a_run(keys: Keys) {
    let key = asked("a", "k", "x");
    bind(&keys, &key, "run_1", now()).await;
    // Old keys are removed when the store cleans up, which takes a moment.
    for hour in 0..500 {
        let later = now().after(2 * DAY + Duration::from_secs(hour * 60 * 60));
        match bind(&keys, &key, "run_2", later).await {
            KeyBinding::New => return,
            bound => assert_eq!(bound, KeyBinding::Earlier("run_1".into())),
        }
        SystemClock.sleep(Duration::from_millis(10)).await;
    }
    panic!("the key is kept for ever");
}

async fn keeps_any_text(keys: Keys) {
    for (number, text) in ["a\0b", "ключ", "'; DROP TABLE runs; --", "\u{7f}"].iter().enumerate()
    {
        let (key, run) = (asked("a", text, text), format!("run_{number}"));
        assert_eq!(bind(&keys, &key, &run, now()).await, KeyBinding::New, "{text:?}");
        assert_eq!(
            bind(&keys, &key, "run_x", now()).await,
            KeyBinding::Earlier(run.into()),
            "{text:?}"
        );
    }
}
