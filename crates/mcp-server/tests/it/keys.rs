//! Keys of calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{KeyBinding, LogError, MemoryLog, StartKey, StartKeys};
use backstop_mcp_server::{Offer, Server};
use layer0::Timestamp;
use layer0::id::RunId;
use layer0::operator::Task;
use rmcp::model::RequestMetaObject;
use serde_json::{Value, json};

use crate::bench::{Bench, connect, params, shown};

/// Makes a call with a key; returns the answer.
async fn keyed(bench: &Bench, keys: &Arc<impl StartKeys + 'static>) -> (bool, String, Value) {
    let server = bench.server().start_keys(Arc::clone(keys) as _);
    call_with(server, json!("order-7"), json!("sweep")).await
}

async fn call_with(server: Server, key: Value, input: Value) -> (bool, String, Value) {
    let client = connect(server).await;
    let mut meta = RequestMetaObject::default();
    meta.insert("backstop/idempotency-key".into(), key);
    let mut params = params(json!({"input": input}));
    params.meta = Some(meta);
    shown(client.call_tool(params).await.unwrap())
}

/// Spec: Q10. What is wrong with the input is not told of the key.
#[tokio::test]
async fn deep_input_is_told_from_a_bad_key() {
    let bench = Bench::new();
    let deep = (0..120).fold(Value::Null, |inner, _| json!([inner]));
    let server = || {
        let offer = Offer::new("clerk", "Does what it is told.").input_schema(json!({}));
        bench.offering(offer).start_keys(Arc::new(MemoryLog::new()))
    };
    let (is_error, text, said) = call_with(server(), json!("order-7"), deep).await;
    assert!(is_error && text.contains("the input cannot be recorded: it is nested"), "{text}");
    assert_eq!(said["error"]["code"], "input.invalid");
    for key in [json!(7), json!(""), json!("k".repeat(StartKey::MAX_BYTES + 1))] {
        let (is_error, text, _) = call_with(server(), key, json!("sweep")).await;
        assert!(is_error && text.contains("must be text of 1 to 256 bytes"), "{text}");
    }
    assert_eq!(bench.asked.load(Ordering::SeqCst), 0);
}

/// Keys in memory, as many as there may be, bound so long ago.
async fn full(hours: i64) -> Arc<MemoryLog> {
    let bound = Timestamp::from_millis(SystemClock.now().as_millis() - hours * 60 * 60 * 1_000);
    let keys = MemoryLog::new();
    for number in 0..100_000 {
        let (name, task) = (number.to_string(), Task::text("x"));
        let key = StartKey::new("clerk", name, &task, None, &BTreeMap::new()).unwrap();
        keys.bind(&key, &RunId::from("run_gone"), bound).await.unwrap();
    }
    Arc::new(keys)
}

/// Spec: Q10. One that is kept for less than a day is not forgotten for another.
#[tokio::test]
async fn keys_are_bounded() {
    let bench = Bench::new();
    let (is_error, text, said) = keyed(&bench, &full(23).await).await;
    assert!(is_error && text.contains("room for 100000 keys"), "{text}");
    assert_eq!(said["error"]["effect"], "none");
    let (is_error, text, _) = keyed(&bench, &full(25).await).await;
    assert!(!is_error, "{text}");
}

/// A store in which every key is bound in this way.
struct Fixed(KeyBinding);

#[async_trait]
impl StartKeys for Fixed {
    async fn bind(&self, _: &StartKey, _: &RunId, _: Timestamp) -> Result<KeyBinding, LogError> {
        Ok(self.0.clone())
    }
}

/// Spec: J2w. A run that was put into the queue under the key is the worker's to start.
#[tokio::test]
async fn queued_run_is_left_to_a_worker() {
    let bench = Bench::new();
    let store = Fixed(KeyBinding::Queued("run_queued".into()));
    let (is_error, text, said) = keyed(&bench, &Arc::new(store)).await;
    assert!(!is_error && text.contains("waits in the queue"), "{text}");
    assert_eq!((&said["outcome"], &said["run"]), (&json!("queued"), &json!("run_queued")));
    assert_eq!(bench.asked.load(Ordering::SeqCst), 0);
}

/// Spec: J2w, Q10. What a key stands for is done once, also when its record was removed.
#[tokio::test]
async fn removed_run_of_a_key_is_refused() {
    let bench = Bench::new();
    let store = Fixed(KeyBinding::Removed("run_old".into()));
    let (is_error, text, said) = keyed(&bench, &Arc::new(store)).await;
    assert!(is_error && text.contains("run `run_old` of this key was removed"), "{text}");
    assert_eq!(said["error"]["code"], "input.invalid");
    assert_eq!(bench.asked.load(Ordering::SeqCst), 0);
}

/// Spec: Q10. A process that died behind the key and before the run leaves no key that starts nothing.
#[tokio::test]
async fn key_without_its_run_starts_it() {
    let store = Arc::new(MemoryLog::new());
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
    let (bench, store) = (Bench::new(), Arc::new(MemoryLog::new()));
    let call = || keyed(&bench, &store);
    for (is_error, text, said) in <[_; 4]>::from(tokio::join!(call(), call(), call(), call())) {
        assert!(!is_error && said["run"].is_string(), "{text}");
    }
    let (is_error, text, _) = keyed(&bench, &store).await;
    assert_eq!((is_error, text.as_str()), (false, "did: sweep"));
    assert_eq!(bench.asked.load(Ordering::SeqCst), 1);
}

/// A store that answers for one key only.
struct Stuck(MemoryLog);

#[async_trait]
impl StartKeys for Stuck {
    async fn bind(
        &self,
        key: &StartKey,
        run: &RunId,
        now: Timestamp,
    ) -> Result<KeyBinding, LogError> {
        match key.key == "stuck" {
            true => std::future::pending().await,
            false => self.0.bind(key, run, now).await,
        }
    }
}

/// Spec: Q10
#[tokio::test]
async fn slow_key_holds_up_no_other() {
    let bench = Bench::new();
    let client = connect(bench.server().start_keys(Arc::new(Stuck(MemoryLog::new())))).await;
    let call = |key: &str| {
        let mut meta = RequestMetaObject::default();
        meta.insert("backstop/idempotency-key".into(), json!(key));
        let mut params = params(json!({"input": "sweep"}));
        params.meta = Some(meta);
        client.call_tool(params)
    };
    tokio::select! {
        biased;
        answer = call("stuck") => panic!("its store does not answer: {answer:?}"),
        answer = call("order-7") => assert_eq!(shown(answer.unwrap()).1, "did: sweep"),
    }
}
