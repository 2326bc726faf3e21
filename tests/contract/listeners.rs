//! The same run leaves the same record, whether or not it is listened to and however the answer comes.

use backstop_event_log::Log;
use std::sync::Arc;

use backstop::{
    Agent, AgentBuilder, EventLog, Live, MemoryErrorStore, MemoryLog, RunRequest, ScriptedProvider,
    ToolError, read_events,
};
use backstop_provider::ScriptedAnswer;

use crate::support::story::same_ids;

/// Looks something up, or fails.
#[backstop::tool(idempotent)]
async fn look(at: String) -> Result<String, ToolError> {
    match at.as_str() {
        "sun" => Err(ToolError::ExecutionFailed("too bright".into())),
        other => Ok(format!("saw {other}")),
    }
}

fn script() -> Vec<ScriptedAnswer> {
    let answers = serde_json::json!([
        {"text": "Let me look.", "thinking": "hm", "tool_calls": [
            {"id": "c1", "name": "look", "arguments": {"at": "sun"}},
            {"id": "c2", "name": "look", "arguments": {"at": "moon"}},
        ], "usage": {"input_tokens": 10, "output_tokens": 5}},
        {"text": "half an", "error": {"kind": "stream_truncated"}},
        {"text": "It is the moon.", "usage": {"input_tokens": 20, "output_tokens": 6}},
    ]);
    serde_json::from_value(answers).unwrap()
}

fn agent(log: &Arc<MemoryLog>, stream: bool) -> AgentBuilder {
    Agent::builder(ScriptedProvider::new(script()))
        .retry(
            backstop::RetryConfig::new()
                .base(std::time::Duration::from_millis(0))
                .cap(std::time::Duration::from_millis(0)),
        )
        .stream(stream)
        .tool(look)
        .error_store(MemoryErrorStore::new())
        .shared_log(Arc::clone(log) as Arc<dyn EventLog>)
}

/// Runs it and returns types and data of its events, without ids and times.
async fn record(stream: bool, listening: bool) -> (String, Vec<Live>) {
    let log = Arc::new(MemoryLog::new());
    let agent = agent(&log, stream).build().unwrap();
    let mut subscriber = listening.then(|| agent.subscribe());
    // One that never looks, and one that is gone at once.
    let _slow = listening.then(|| agent.subscribe());
    drop(agent.subscribe());
    let outcome = agent.run(RunRequest::new("What is there?").session("s-1")).await.unwrap();
    let (_, events) = read_events(&*log, &outcome.run_id).await.unwrap();
    let mut lines = Vec::new();
    for event in events {
        let mut event = serde_json::to_value(event).unwrap();
        event["at"] = "".into();
        event["salt"] = "".into();
        event["hash"] = "".into();
        for key in ["usage", "duration_ms", "first_token_ms", "delay_ms"] {
            if let Some(data) = event["data"].as_object_mut() {
                data.remove(key);
            }
        }
        if event["type"] == "run.started" {
            // How it was asked is part of the agent.
            event["data"]["agent"] = "".into();
            event["data"]["definition_digest"] = "".into();
        }
        lines.push(event.to_string());
    }
    drop(agent);
    let mut live = Vec::new();
    if let Some(subscriber) = &mut subscriber {
        while let Some(message) = subscriber.next().await {
            live.push(message);
        }
    }
    // Ids of stored errors carry the day they were made.
    let ids = regex::Regex::new(r"err_[0-9]{8}_[0-9]{6}_[0-9a-f]{6}").unwrap();
    let digests = regex::Regex::new(r#""request_digest":"[0-9a-f]+""#).unwrap();
    let text = ids.replace_all(&lines.join("\n"), "err_#").into_owned();
    let text = digests.replace_all(&text, "").into_owned();
    (same_ids(&text), live)
}

/// Spec: V1, R6
#[tokio::test]
async fn record_does_not_depend_on_listeners() {
    let (plain, _) = record(false, false).await;
    let (streamed, _) = record(true, false).await;
    let (heard, live) = record(true, true).await;
    let (whole, unstreamed) = record(false, true).await;
    assert_eq!(plain, streamed);
    assert_eq!(plain, heard);
    assert_eq!(plain, whole);
    assert!(plain.contains("provider.stream_truncated"), "{plain}");

    // What is heard is what is logged, in order, and pieces of answers in between.
    let logged: Vec<u64> = live
        .iter()
        .filter_map(|live| match live {
            Live::Logged(event) => Some(event.seq),
            _ => None,
        })
        .collect();
    assert_eq!(logged, (1..=logged.len() as u64).collect::<Vec<_>>());
    assert_eq!(logged.len(), plain.lines().count());
    let deltas = |live: &[Live]| {
        live.iter()
            .filter_map(|live| match live {
                Live::Delta { call, attempt, .. } => Some((*call, *attempt)),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    assert!(deltas(&live).contains(&(2, 1)) && deltas(&live).contains(&(2, 2)), "{live:?}");
    assert!(deltas(&unstreamed).is_empty());

    // The failed attempt is known before anything of the next one is heard.
    let position = |wanted: &dyn Fn(&Live) -> bool| live.iter().position(wanted).unwrap();
    let failed = position(&|live| {
        matches!(live, Live::Logged(event)
            if event.kind.event_type() == "model.attempted"
                && serde_json::to_value(&**event).unwrap()["data"]["code"] == "provider.stream_truncated")
    });
    let next = position(&|live| matches!(live, Live::Delta { call: 2, attempt: 2, .. }));
    assert!(failed < next);
}

/// Spec: D14. A stream that is read when its log is gone says which events are there, and how the run
/// ended.
#[tokio::test]
async fn stream_says_what_it_cannot_read() {
    use backstop::{Budget, Database, Limits, StreamItem};
    let database = Database::in_memory().await.unwrap();
    let script: Vec<serde_json::Value> = (0..60)
        .map(|n| serde_json::json!({"tool_calls": [{"id": format!("c{n}"), "name": "look", "arguments": {"at": n.to_string()}}]}))
        .chain([serde_json::json!({"text": "done"})])
        .collect();
    let script: Vec<ScriptedAnswer> = serde_json::from_value(script.into()).unwrap();
    let budget = Budget::new().model_calls(None).tool_calls(None);
    let agent = Agent::builder(ScriptedProvider::new(script))
        .tool(look)
        .limits(Limits::new().max_iterations(100))
        .budget(budget)
        .log(database.log())
        .build()
        .unwrap();
    let mut stream = agent.stream("?");
    let log = database.log();
    while log.summary(stream.run_id()).await.unwrap().is_none_or(|summary| summary.is_open()) {
        tokio::task::yield_now().await;
    }
    database.close().await;
    let (mut next, mut unread, mut end) = (1, 0, None);
    while let Some(item) = stream.next().await {
        match item {
            StreamItem::Logged(event) => {
                assert_eq!(event.seq, next);
                next += 1;
            }
            StreamItem::Unread { from, to, .. } => {
                assert_eq!(from, next);
                unread += to + 1 - from;
                next = to + 1;
            }
            StreamItem::Ended(result) => end = Some(result.unwrap()),
            _ => {}
        }
    }
    assert_eq!(end.unwrap().text(), "done");
    assert_eq!((next - 1 - unread, unread > 40), (256, true), "256 are held in memory");
}
