//! What `tracing` is told of stored errors.

use backstop::{Agent, MemoryErrorStore, ScriptedProvider, ToolError};
use tracing::instrument::WithSubscriber;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::support::lines::Lines;

/// Fails at length.
#[backstop::tool]
async fn query() -> Result<(), ToolError> {
    Err(ToolError::ExecutionFailed("no such table\n".repeat(40)))
}

/// Spec: S13
#[tokio::test]
async fn storing_and_reading_an_error_are_spans() {
    let script = serde_json::json!([
        {"tool_calls": [{"id": "c1", "name": "query"}]},
        {"tool_calls": [{"id": "c2", "name": "get_error_detail",
            "arguments": {"error_id": "${error_id.1}"}}]},
        {"text": "The table is missing."},
    ]);
    let script = ScriptedProvider::new(serde_json::from_value::<Vec<_>>(script).unwrap());
    let agent =
        Agent::builder(script).tool(query).error_store(MemoryErrorStore::new()).build().unwrap();
    let lines = Lines::default();
    let written = lines.clone();
    let logger = tracing_subscriber::fmt()
        .with_span_events(FmtSpan::NEW)
        .with_ansi(false)
        .with_writer(move || written.clone())
        .finish();
    agent.run("Which table?").with_subscriber(logger).await.unwrap();
    let lines = lines.text();
    let one = |parts: &[&str]| {
        let matching = lines.lines().filter(|line| parts.iter().all(|part| line.contains(part)));
        assert_eq!(matching.count(), 1, "{parts:?} in {lines}");
    };
    one(&["error_store.store{tool=query}", "new"]);
    one(&["error_stored error_id=err_", "tool_name=query"]);
    one(&["error_store.get{session=ses_", "new"]);
}
