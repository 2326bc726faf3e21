//! Conversations and work that are passed to another run, which can read their stored values.

use std::sync::Arc;

use backstop_error_store::{ErrorStore, MemoryErrorStore, MemoryResultStore, ResultStore};
use backstop_event_log::{EventLog, MemoryLog};
use backstop_provider::{ModelRequest, ScriptedAnswer, ScriptedProvider};
use backstop_react::{
    Agent, AgentBuilder, ForkRequest, History, ResumeRequest, RunOutcome, RunRequest, read_outcome,
    said_before, said_until,
};
use backstop_redact::Redactor;
use backstop_tool::{ToolError, tool};
use layer0::event::EventKind;
use layer0::failure::Failure;
use layer0::message::Message;
use serde_json::json;

use crate::bench::*;

/// Pays, and describes it in many words.
#[tool]
async fn pay_at_length() -> Result<String, ToolError> {
    Ok(format!("receipt 4711\n{}", "all of it, line by line\n".repeat(1_000)))
}

/// Calls `first`; then, if called again, reads the stored values that its messages name.
fn curious(first: (&'static str, &'static str)) -> ScriptedProvider {
    ScriptedProvider::from_fn(move |request: &ModelRequest| {
        let messages = request.messages.messages();
        let text = |message: &Message| match message {
            Message::Tool { content, .. } | Message::User { content, .. } => content.to_string(),
            _ => String::new(),
        };
        let id = messages.iter().find_map(|message| id_in(&text(message)));
        match (messages.last().map(|message| &**message), id) {
            (Some(Message::Tool { content, .. }), _) => says(content),
            (Some(Message::User { content, .. }), Some(id)) if content.contains("the reader") => {
                calls([call("c8", "reader", json!({"input": format!("read {id}")}))])
            }
            (_, Some(id)) => reads(&id),
            _ => calls([call("c1", first.0, serde_json::from_str(first.1).unwrap())]),
        }
    })
}

fn id_in(text: &str) -> Option<String> {
    let at = text.find("res_").or_else(|| text.find("err_"))?;
    let is_of_id = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    Some(text[at..].chars().take_while(is_of_id).collect())
}

fn reads(id: &str) -> ScriptedAnswer {
    match id.starts_with("res_") {
        true => calls([call("c9", "get_tool_result", json!({"result_id": id, "offset": 2000}))]),
        false => calls([call("c9", "get_error_detail", json!({"error_id": id}))]),
    }
}

struct SharedStores {
    log: Arc<MemoryLog>,
    errors: Arc<MemoryErrorStore>,
    results: Arc<MemoryResultStore>,
}

impl SharedStores {
    fn new() -> Self {
        let (errors, results) = (MemoryErrorStore::new(), MemoryResultStore::new());
        Self { log: Arc::default(), errors: Arc::new(errors), results: Arc::new(results) }
    }

    fn agent(&self, first: (&'static str, &'static str)) -> AgentBuilder {
        Agent::builder(curious(first))
            .stream(false)
            .tool(pay_at_length)
            .tool(broken)
            .shared_log(Arc::clone(&self.log) as Arc<dyn EventLog>)
            .shared_error_store(Arc::clone(&self.errors) as Arc<dyn ErrorStore>)
            .shared_result_store(Arc::clone(&self.results) as Arc<dyn ResultStore>)
    }
}

const RESULT: (&str, &str) = ("pay_at_length", "{}");
const ERROR: (&str, &str) = ("broken", r#"{"how": "long"}"#);

#[track_caller]
fn check_read(outcome: &RunOutcome) {
    let (text, is_error) = tool_texts(outcome).pop().unwrap();
    assert!(!is_error, "{text}");
    assert!(text.contains("line by line") || text.contains("trace"), "{text}");
}

/// Spec: L2
#[tokio::test]
async fn history_of_a_session_reads_there() {
    for first in [RESULT, ERROR] {
        let stores = SharedStores::new();
        let agent = stores.agent(first).build().unwrap();
        let begun = agent.run(RunRequest::new("go").session("ses_a")).await.unwrap();
        let said = said_until(&*stores.log, &begun.run_id).await.unwrap();
        let other = agent.run(RunRequest::new("more").history(said).session("ses_b")).await;
        check_read(&other.unwrap());
        // The one after it follows it, and one forked from there has both.
        let third = agent.run(RunRequest::new("still more").session("ses_b")).await.unwrap();
        check_read(&third);
        for said in [
            said_until(&*stores.log, &third.run_id).await.unwrap(),
            said_before(&*stores.log, &third.run_id).await.unwrap(),
        ] {
            let outcome = agent.run(RunRequest::new("again").history(said)).await.unwrap();
            check_read(&outcome);
            let before = said_before(&*stores.log, &outcome.run_id).await.unwrap();
            check_read(&agent.run(RunRequest::new("again").history(before)).await.unwrap());
        }
    }
}

/// Spec: L2
#[tokio::test]
async fn transcript_of_an_outcome_reads_there() {
    let stores = SharedStores::new();
    let agent = stores.agent(RESULT).build().unwrap();
    let begun = agent.run("go").await.unwrap();
    let next = agent.run(RunRequest::new("more").history(begun.transcript)).await.unwrap();
    check_read(&next);
    let kept = read_outcome(&*stores.log, &next.run_id).await.unwrap().unwrap();
    check_read(&agent.run(RunRequest::new("more").history(&kept.transcript)).await.unwrap());
    assert_eq!(kept.transcript.sessions(), [next.session.clone(), begun.session.clone()]);
    // Its record names the session, and a resumed run reads there too.
    let bench = Bench { log: Arc::clone(&stores.log), ..Bench::new() };
    match &bench.events(&next.run_id).await[0].kind {
        EventKind::RunStarted(started) => assert_eq!(*started.sessions, [begun.session]),
        other => panic!("{other:?}"),
    }
    let last = bench.events(&next.run_id).await.len() as u64;
    let fork = ForkRequest::new(next.run_id, last).input("and now?");
    check_read(&agent.fork(fork).await.unwrap());
}

/// Spec: L2, D7, O2
#[tokio::test]
async fn run_below_a_fork_reads_there() {
    let stores = SharedStores::new();
    let reader = stores.agent(ERROR).name("reader").build().unwrap();
    let lead = stores.agent(RESULT).tool(reader.as_tool("Reads.")).build().unwrap();
    let begun = lead.run("go").await.unwrap();
    let bench = Bench { log: Arc::clone(&stores.log), ..Bench::new() };
    let last = bench.events(&begun.run_id).await.len() as u64;
    let fork = ForkRequest::new(begun.run_id, last).input("ask the reader");
    let copy = lead.fork(fork).await.unwrap();
    check_read(&copy);
    assert!(lead.resume(ResumeRequest::new(copy.run_id)).await.is_ok());
}

/// Spec: L2, N1
#[tokio::test]
async fn sessions_of_a_history_are_checked() {
    let stores = SharedStores::new();
    let redactor = Redactor::new().with_secret("hush-hush-secret-1");
    let agent = stores.agent(RESULT).redactor(redactor).build().unwrap();
    for session in ["a b\n", "hush-hush-secret-1"] {
        let history = History::default().with_sessions([session.into()]);
        let failure = agent.run(RunRequest::new("go").history(history)).await.unwrap_err();
        assert_eq!(failure.error.code(), "input.invalid", "{failure}");
    }
}
