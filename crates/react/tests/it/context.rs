//! Fields of a record about the place of its run, and about its agent.

use backstop_react::RunRequest;
use backstop_retry::RetryConfig;
use backstop_tool::{ToolContext, ToolError, tool};
use layer0::event::{EventKind, JournalKind, RunStarted};
use layer0::id::RunId;
use serde_json::json;

use crate::bench::*;

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

async fn started(bench: &Bench, run: &RunId) -> RunStarted {
    match bench.events(run).await.swap_remove(0).kind {
        EventKind::RunStarted(started) => started,
        other => panic!("{other:?}"),
    }
}

/// Spec: D1, D2, D15, Ob1
#[tokio::test]
async fn a_record_begins_with_where_its_run_belongs() {
    let bench = Bench::new();
    let agent = bench.agent(vec![says("done")]).build().unwrap();
    let request = RunRequest::new("x").label("tenant", "acme").trace_parent(TRACE);
    let outcome = agent.run(request).await.unwrap();
    let started = started(&bench, &outcome.run_id).await;
    let own = Some(&outcome.run_id);
    assert_eq!((started.run.as_ref(), started.root.as_ref(), started.parent), (own, own, None));
    assert_eq!(started.labels.iter().collect::<Vec<_>>(), [(&"tenant".into(), &"acme".into())]);
    assert_eq!(started.trace_parent.as_deref(), Some(TRACE));
    assert_eq!((started.journal, started.cause, started.key_id), (JournalKind::Local, None, None));
}

/// Says where in a trace its run is.
#[tool]
async fn trace_of(context: &ToolContext) -> Result<String, ToolError> {
    Ok(context.trace_parent.as_deref().unwrap_or("none").to_owned())
}

/// Spec: T1, Q9. A tool knows the run's place in a trace, for what it asks in its turn.
#[tokio::test]
async fn tools_know_the_trace_of_their_run() {
    for (request, expected) in
        [(RunRequest::new("x").trace_parent(TRACE), TRACE), (RunRequest::new("x"), "none")]
    {
        let bench = Bench::new();
        let script = vec![calls([call("c1", "trace_of", json!({}))]), says("done")];
        let agent = bench.agent(script).tool(trace_of).build().unwrap();
        let outcome = agent.run(request).await.unwrap();
        assert_eq!(tool_texts(&outcome), [(expected.to_owned(), false)]);
    }
}

#[tokio::test]
async fn labels_sessions_and_trace_parents_are_checked() {
    let bench = Bench::new();
    let many = (0..33).fold(RunRequest::new("x"), |request, n| request.label(n.to_string(), ""));
    for (request, why) in [
        (many, "at most 32 labels"),
        (RunRequest::new("x").label(" ", "x"), "a key has 1 to 64 bytes"),
        (RunRequest::new("x").label("k".repeat(65), "x"), "a key has 1 to 64 bytes"),
        (RunRequest::new("x").label("k\n", "x"), "a key has 1 to 64 bytes"),
        (RunRequest::new("x").label("k", "x".repeat(257)), "a value has at most 256 bytes"),
        (RunRequest::new("x").label("k", "\0"), "a value has at most 256 bytes"),
        (RunRequest::new("x").session(" "), "the session ` ` must not be empty"),
        (RunRequest::new("x").session("a\u{1b}b"), "must not have control characters"),
        (RunRequest::new("x").session("s".repeat(257)), "must have at most 256 bytes"),
        (RunRequest::new("x").trace_parent(TRACE.to_uppercase()), "as W3C has them"),
        (RunRequest::new("x").trace_parent(&TRACE[1..]), "as W3C has them"),
    ] {
        let agent = bench.agent(vec![says("done")]).build().unwrap();
        let failure = agent.run(request).await.unwrap_err();
        assert_eq!(failure.code(), "input.invalid");
        let text = layer0::failure::Chain(&failure).to_string();
        assert!(text.contains(why), "{text}");
    }
}

/// Spec: D2. One digest is of the agent, the other of all that was resolved; what a run asks for itself
/// is in neither.
#[tokio::test]
async fn another_retry_policy_is_the_same_agent() {
    let bench = Bench::new();
    let mut seen = Vec::new();
    for (attempts, instructions, schema) in
        [(2, "", false), (3, "", false), (2, "", true), (2, "Be brief.", false)]
    {
        let agent = bench
            .agent(vec![says(r#"{"n":1}"#)])
            .instructions(instructions)
            .retry(RetryConfig::new().attempts(attempts))
            .build()
            .unwrap();
        let mut request = RunRequest::new("x");
        if schema {
            request = request.output_schema(json!({ "type": "object" }));
        }
        let started = started(&bench, &agent.run(request).await.unwrap().run_id).await;
        assert_eq!(started.output_schema.is_some(), schema);
        seen.push((started.agent.digest, started.definition_digest.unwrap()));
    }
    let [first, other_policy, with_schema, other_text] = &seen[..] else { unreachable!() };
    assert!(first.0 == other_policy.0 && first.1 != other_policy.1);
    assert_eq!(first, with_schema);
    assert!(first.0 != other_text.0 && first.1 != other_text.1);
}
