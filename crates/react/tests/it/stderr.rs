//! Standard error of tools that succeed (SPEC N4).

use std::sync::Arc;

use backstop_error_store::MemoryResultStore;
use backstop_event_log::{MemoryLog, read_events};
use backstop_provider::ScriptedProvider;
use backstop_react::{Agent, ForkRequest, RecordedTools, replay};
use backstop_tool::{ToolContext, ToolError, tool};
use layer0::event::{Event, EventKind, ToolResponded};
use layer0::message::Message;
use serde_json::json;

/// Counts, and warns of so many files.
#[tool]
async fn count(warnings: u32, context: &ToolContext) -> Result<String, ToolError> {
    let warnings: String = (0..warnings).map(|n| format!("warning: file {n} skipped\n")).collect();
    context.stderr.keep(warnings);
    Ok("42\n".to_owned())
}

fn counting(warnings: u32) -> ScriptedProvider {
    ScriptedProvider::calling("count", json!({ "warnings": warnings }), "done")
}

fn answer(events: &[Event]) -> &ToolResponded {
    let answer = events.iter().find_map(|event| match &event.kind {
        EventKind::ToolResponded(answer) => Some(answer),
        _ => None,
    });
    answer.unwrap()
}

fn told(requests: &backstop_provider::ScriptedRequests) -> String {
    let messages = requests.all().last().unwrap().messages.clone();
    let told = messages.iter().find_map(|message| match &**message {
        Message::Tool { content, .. } => Some(content.to_string()),
        _ => None,
    });
    told.unwrap()
}

/// Spec: N4
#[tokio::test]
async fn standard_error_follows_the_output() {
    let log = Arc::new(MemoryLog::new());
    let model = counting(1);
    let requests = model.requests();
    let agent = Agent::builder(model).tool(count).shared_log(log.clone()).build().unwrap();
    let run = agent.run("How many?").await.unwrap().run_id;
    let expected = "42\n\nstandard error:\nwarning: file 0 skipped";
    assert_eq!(told(&requests), expected);
    let (_, events) = read_events(&*log, &run).await.unwrap();
    let answer = answer(&events);
    assert_eq!(answer.output.value(), json!("42\n"), "the output is the output alone");
    assert_eq!(answer.stderr.as_deref(), Some("warning: file 0 skipped"));
    replay(&*log, &run).await.unwrap();
    // The recorded answer of a tool is whole.
    let model = counting(1);
    let requests = model.requests();
    let recorded =
        Agent::builder(model).tool(count).recorded_tools(RecordedTools::from_events(&events));
    let agent = recorded.shared_log(log.clone()).build().unwrap();
    agent.fork(ForkRequest::new(run, 1)).await.unwrap();
    assert_eq!(told(&requests), expected);
}

/// Spec: N4
#[tokio::test]
async fn long_standard_error_is_stored_whole() {
    let log = Arc::new(MemoryLog::new());
    let model = counting(2_000);
    let requests = model.requests();
    let agent = Agent::builder(model).tool(count).result_store(MemoryResultStore::new());
    let agent = agent.shared_log(log.clone()).build().unwrap();
    let run = agent.run("How many?").await.unwrap().run_id;
    let (_, events) = read_events(&*log, &run).await.unwrap();
    let stored = events.iter().find_map(|event| match &event.kind {
        EventKind::ResultStored(stored) => Some(stored),
        _ => None,
    });
    let told = told(&requests);
    assert!(told.contains(stored.unwrap().result_id.as_str()), "{}", &told[..200]);
    assert!(told.starts_with("42\n") && told.len() < 20_000, "{}", told.len());
}
