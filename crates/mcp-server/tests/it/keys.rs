//! How long keys are kept, and how many.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock, VirtualClock};
use backstop_state::MemoryStateStore;
use layer0::state::{Scope, StateQuery, StateWrite, Versioned};
use layer0::{StateStore, Timestamp};
use rmcp::model::RequestMetaObject;
use serde_json::{Value, json};

use crate::bench::{Bench, connect, params, shown};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Calls with a key; returns what was said.
async fn keyed(bench: &Bench, store: &MemoryStateStore) -> (bool, String, Value) {
    let client = connect(bench.server().state_store(Arc::new(store.clone()))).await;
    let mut meta = RequestMetaObject::default();
    meta.insert("backstop/idempotency-key".into(), json!("order-7"));
    let mut params = params(json!({"input": "sweep"}));
    params.meta = Some(meta);
    shown(client.call_tool(params).await.unwrap())
}

async fn kept(store: &MemoryStateStore) -> Vec<(String, Versioned)> {
    let query = StateQuery::new(Scope::Global).prefix("mcp/").limit(1_000_000);
    store.list(query).await.unwrap()
}

/// A store in which there are as many keys as there may be, written so long ago.
async fn full(age: Duration) -> MemoryStateStore {
    let age = i64::try_from(age.as_millis()).unwrap();
    let written = Timestamp::from_millis(SystemClock.now().as_millis() - age);
    let clock = Arc::new(VirtualClock::starting_at(written));
    let store = MemoryStateStore::new().clock(clock);
    for part in 0..256 {
        for number in 0..400 {
            let key = format!("mcp/{part:02x}{number}");
            store.write(StateWrite::new(Scope::Global, key, json!(0))).await.unwrap();
        }
    }
    store
}

/// Spec: Q10
#[tokio::test]
async fn keys_expire() {
    let (bench, store) = (Bench::new(), MemoryStateStore::new());
    let (is_error, text, _) = keyed(&bench, &store).await;
    assert!(!is_error, "{text}");
    let (_, found) = kept(&store).await.remove(0);
    let life = |kept: &Versioned| kept.expires_at.unwrap().since(kept.written_at);
    assert_eq!(life(&found), 30 * 24 * HOUR);
    assert!(!keyed(&bench, &store).await.0);
    let (_, again) = kept(&store).await.remove(0);
    assert!(again.version > found.version, "a call with it keeps it");
    assert_eq!(life(&again), 30 * 24 * HOUR);
}

/// Spec: Q10. The oldest goes, if it was kept for a day; else a new one is refused, and may come later.
#[tokio::test]
async fn keys_are_bounded() {
    let (bench, store) = (Bench::new(), full(23 * HOUR).await);
    let (is_error, text, said) = keyed(&bench, &store).await;
    assert!(is_error && text.contains("there is room for about 102400 idempotency keys"), "{text}");
    let error = &said["error"];
    assert_eq!((&error["retry"], &error["effect"]), (&json!("backoff"), &json!("none")));
    assert_eq!(kept(&store).await.len(), 102_400);

    let store = full(25 * HOUR).await;
    let (is_error, text, _) = keyed(&bench, &store).await;
    assert!(!is_error, "{text}");
    assert_eq!(kept(&store).await.len(), 102_400);
}

/// Spec: Q10. A process that died behind the key and before the run leaves no key that starts nothing.
#[tokio::test]
async fn key_without_its_run_starts_it() {
    let store = MemoryStateStore::new();
    let (_, _, lost) = keyed(&Bench::new(), &store).await;
    let bench = Bench::new();
    for _ in 0..2 {
        let (is_error, text, said) = keyed(&bench, &store).await;
        assert_eq!((is_error, text.as_str()), (false, "did: sweep"));
        assert_eq!(said["run"], lost["run"], "the key stands for it");
    }
    assert_eq!(bench.asked.load(Ordering::SeqCst), 1);
}

/// Spec: Q10. Two processes that are called with one key at the same time do the work once.
#[tokio::test]
async fn processes_share_the_run_of_a_key() {
    let (bench, store) = (Bench::new(), MemoryStateStore::new());
    let call = || keyed(&bench, &store);
    for (is_error, text, said) in <[_; 4]>::from(tokio::join!(call(), call(), call(), call())) {
        assert!(!is_error && said["run"].is_string(), "{text}");
    }
    let (is_error, text, _) = keyed(&bench, &store).await;
    assert_eq!((is_error, text.as_str()), (false, "did: sweep"));
    assert_eq!(bench.asked.load(Ordering::SeqCst), 1);
}
