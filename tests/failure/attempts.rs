//! What the record says of an attempt of a model call.

use std::sync::Arc;

use backstop::layer0::event::{EventKind, ModelAttempted};
use backstop::{EventLog, MemoryLog, OpenAi, RetryConfig, ScriptedAnswer, read_events};
use backstop_react::AgentBuilder;
use backstop_testkit::{Loopback, Reply};
use serde_json::json;

/// Spec: R8, D1. An attempt is recorded with its times, and with what the provider calls the request.
#[tokio::test]
async fn attempts_are_recorded_with_request_and_times() {
    let turn = std::sync::atomic::AtomicUsize::new(0);
    let server = Loopback::serving(move |_| {
        let answer = ScriptedAnswer::saying("hello");
        match turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => Reply::json(503, &json!({ "error": { "message": "no" } }))
                .header("x-request-id", "req_1"),
            1 => Reply::json(503, &json!({ "error": { "message": "no" } }))
                .header("x-request-id", "two words"),
            _ => backstop_testkit::openai::reply(&answer, &json!({ "stream": true })),
        }
    });
    let log = Arc::new(MemoryLog::new());
    let openai = OpenAi::new("m").base_url(format!("{}/v1", server.url())).build().unwrap();
    let agent = AgentBuilder::from_shared(Arc::new(openai))
        .retry(
            RetryConfig::new()
                .base(std::time::Duration::from_millis(1))
                .cap(std::time::Duration::from_millis(1)),
        )
        .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
        .build()
        .unwrap();
    let run = agent.run("hello").await.unwrap().run_id;
    let (_, events) = read_events(&*log, &run).await.unwrap();
    let attempts: Vec<&ModelAttempted> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ModelAttempted(attempted) => Some(attempted),
            _ => None,
        })
        .collect();
    let ids: Vec<_> = attempts.iter().map(|attempted| attempted.request_id.as_deref()).collect();
    assert_eq!(ids, [Some("req_1"), None, None]);
    assert!(attempts[0].first_token_ms.is_none() && attempts[0].next_provider.is_none());
    assert!(attempts[2].first_token_ms.is_some_and(|first| first <= attempts[2].duration_ms));
}
