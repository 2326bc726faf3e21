//! What becomes of error texts, and of secrets.

use std::sync::Arc;

use clock::Clock;
use error_store::{ErrorFilter, ErrorStore};
use event_log::EventLog;
use provider::ScriptedProvider;
use react::Agent;
use serde_json::json;

use crate::bench::*;

/// Spec: S5, S9
#[tokio::test]
async fn errors_are_stored_whole_and_redacted() {
    let bench = Bench::new();
    let batch = calls([
        call("c1", "broken", json!({"how": "long"})),
        call("c2", "broken", json!({"how": "key"})),
        call("c3", "broken", json!({"how": "panic"})),
    ]);
    let outcome = bench.run(bench.agent(vec![batch, says("done")]).tool(broken)).await.unwrap();
    let texts = tool_texts(&outcome);
    let stored = bench.errors.list(ErrorFilter::default()).await.unwrap();
    let long = stored.iter().find(|error| error.call_id.as_str() == "c1").unwrap();
    assert_eq!(
        texts[0].0,
        format!(
            "Tool 'broken' failed: Code SQL_ERROR: first line\n[Error ID: {id}]\n\
             Use get_error_detail(error_id=\"{id}\") for the complete error.",
            id = long.id
        )
    );
    assert_eq!(error_store::readable(&long.raw).len(), "first line\n".len() + 3_000);
    assert!(texts[1].0.contains("api_key=[redacted]"), "{}", texts[1].0);
    assert!(stored.iter().all(|error| !error.raw.contains("abcdef0123456789")));
    assert!(texts[2].0.starts_with("Tool 'broken' panicked: index 7 out of range for c3\n"));
}

/// Spec: S7
#[tokio::test]
async fn the_model_reads_the_detail_and_recovers() {
    let bench = Bench::new();
    let answers = vec![
        calls([call("c1", "broken", json!({"how": "long"}))]),
        calls([call("c2", "get_error_detail", json!({"error_id": "${error_id.1}"}))]),
        calls([call("c3", "get_error_detail", json!({"error_id": "err_20260101_000000_ffffff"}))]),
        calls([call("c4", "broken", json!({"how": "fine"}))]),
        says("recovered"),
    ];
    let outcome = bench.run(bench.agent(answers).tool(broken)).await.unwrap();
    let texts = tool_texts(&outcome);
    assert!(!texts[1].1 && texts[1].0.contains("trace\\ntrace"), "{}", texts[1].0);
    assert_eq!(texts[2].0, "Error ID not found: err_20260101_000000_ffffff");
    assert_eq!(texts[3], ("fine".into(), false));
    assert_eq!(bench.errors.list(ErrorFilter::default()).await.unwrap().len(), 1);
}

/// Spec: S6
#[tokio::test]
async fn without_a_store_the_model_reads_the_head() {
    let bench = Bench::new();
    let answers = vec![calls([call("c1", "broken", json!({"how": "long"}))]), says("done")];
    let clock: Arc<dyn Clock> = Arc::new(bench.clock.clone());
    let agent = Agent::builder(ScriptedProvider::new(answers)).clock(clock).tool(broken);
    let outcome = bench.run(agent).await.unwrap();
    let texts = tool_texts(&outcome);
    assert_eq!(texts[0].0.chars().count(), "Tool error: SQL_ERROR - ".len() + 500);
    assert!(texts[0].0.starts_with("Tool error: SQL_ERROR - first line\ntrace"));
}

/// Spec: E10
#[tokio::test]
async fn keys_the_process_holds_are_written_nowhere() {
    let bench = Bench::new();
    let key = "plain-looking-secret-value";
    let answers =
        vec![calls([call("c1", "broken", json!({"how": key}))]), says(&format!("it is {key}"))];
    let redactor = redact::Redactor::new().with_secret(key);
    let outcome = bench.run(bench.agent(answers).tool(broken).redactor(redactor)).await.unwrap();
    assert_eq!(outcome.text(), "it is [redacted]");
    let log = bench.log.records(&outcome.run_id, 1).await.unwrap();
    assert!(log.iter().all(|record| !record.data.contains(key)));
}

/// Spec: E10
#[tokio::test]
async fn keys_do_not_stream_to_listeners_either() {
    let bench = Bench::new();
    let key = "plain-looking-secret-value";
    let redactor = redact::Redactor::new().with_secret(key);
    let agent = bench.agent(vec![says(key)]).redactor(redactor).build().unwrap();
    let mut listener = agent.subscribe();
    agent.run("question").await.unwrap();
    drop(agent);
    while let Some(live) = listener.next().await {
        assert!(!format!("{live:?}").contains(key), "{live:?}");
    }
}
