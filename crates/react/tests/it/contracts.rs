//! Contracts as part of the agent: command lines, grants, walls.

use std::sync::Arc;

use backstop_event_log::{Decision, EventLog, Inbox, current_agent, read_events};
use backstop_provider::{ModelSettings, ScriptedAnswer, ScriptedProvider};
use backstop_react::{
    Agent, AgentBuilder, ReopenRequest, ResumeError, ResumeRequest, RunRequest, replay,
};
use layer0::Timestamp;
use layer0::event::Event;
use layer0::id::RunId;
use layer0::stop::Stop;
use serde_json::{Value, json};

use crate::bench::*;
use crate::tape::Tape;

fn asks() -> ScriptedAnswer {
    calls([call("c1", "add", json!({"x": 1, "y": 2}))])
}

fn adder(tape: &Arc<Tape>, answers: Vec<ScriptedAnswer>) -> AgentBuilder {
    let agent = Agent::builder(ScriptedProvider::new(answers)).name("adder").tool(add);
    agent.require_approval("add").shared_log(Arc::clone(tape) as Arc<dyn EventLog>)
}

fn program(command: &str) -> Value {
    json!({ "command": [command], "walls": { "network": "none" } })
}

fn settings(tokens: u32) -> ModelSettings {
    let mut settings = ModelSettings::default();
    settings.max_output_tokens = Some(tokens);
    settings
}

fn adopting(run: &RunId) -> ResumeRequest {
    ResumeRequest::new(run.clone()).by("deploy").allow_other_agent()
}

async fn approve(tape: &Tape, id: &layer0::id::ApprovalId) {
    let decision = Decision::approve("ops");
    assert!(tape.log.decide(id, decision, Timestamp::default()).await.unwrap());
}

async fn events(tape: &Tape, run: &RunId) -> Vec<Event> {
    read_events(tape, run).await.unwrap().1
}

fn count(events: &[Event], kind: &str) -> usize {
    types(events).into_iter().filter(|it| *it == kind).count()
}

/// Spec: J2w, A1. Who approved a call of one program has not approved another one.
#[tokio::test]
async fn approval_is_of_the_contract_shown() {
    let tape = Arc::new(Tape::default());
    let old = adder(&tape, vec![asks()]).tool_contract("add", program("pay")).build().unwrap();
    let waiting = old.run(RunRequest::new("go").run("run_1".into())).await.unwrap();
    approve(&tape, &waiting.approvals[0].id).await;

    let other = |answers| adder(&tape, answers).tool_contract("add", program("other"));
    let new = other(vec![says("done")]).build().unwrap();
    let refused = new.resume(waiting.run_id.clone()).await.unwrap_err();
    assert!(matches!(refused, ResumeError::Diverged(_)), "{refused}");

    let again = new.resume(adopting(&waiting.run_id)).await.unwrap();
    assert_eq!(again.stop, Stop::WaitingApproval);
    assert_ne!(again.approvals[0].id, waiting.approvals[0].id);
    let seen = events(&tape, &waiting.run_id).await;
    assert_eq!(count(&seen, "tool.requested"), 0);

    approve(&tape, &again.approvals[0].id).await;
    let ended = new.resume(waiting.run_id.clone()).await.unwrap();
    assert_eq!(tool_texts(&ended), [("3".to_owned(), false)]);
    assert_eq!(ended.stop, Stop::Completed);
    assert!(replay(&*tape, &waiting.run_id).await.unwrap().is_some());
}

/// Spec: J2w, A1. Its process died between the decision and the call.
#[tokio::test]
async fn approved_call_that_became_another_is_asked_again() {
    let tape = Arc::new(Tape::default());
    let old = |tape: &_, answers| adder(tape, answers).tool_contract("add", program("pay"));
    let agent = old(&tape, vec![asks(), says("done")]).build().unwrap();
    let run = agent.run(RunRequest::new("go").run("run_1".into())).await.unwrap();
    approve(&tape, &run.approvals[0].id).await;
    agent.resume(run.run_id.clone()).await.unwrap();
    let batches = tape.batches();
    let has = |kind| {
        move |batch: &backstop_event_log::Batch| {
            batch.records.iter().any(|it| it.event_type == kind)
        }
    };
    let granted = batches.iter().position(has("approval.granted")).unwrap();
    assert!(!has("tool.requested")(&batches[granted]));

    for (command, stop) in [("pay", Stop::Completed), ("other", Stop::WaitingApproval)] {
        let tape = Tape::after(&batches[..=granted]).await;
        let agent = adder(&tape, vec![says("done")]).tool_contract("add", program(command));
        let resumed = agent.instructions("Be brief.").build().unwrap();
        let resumed = resumed.resume(adopting(&run.run_id)).await.unwrap();
        assert_eq!(resumed.stop, stop, "{command}");
        // Its earlier decisions are made again.
        replay(&*tape, &run.run_id).await.unwrap();
    }
}

/// Spec: J2w, N4. Not even where another definition is asked for.
#[tokio::test]
async fn run_within_walls_never_goes_on_without() {
    let tape = Arc::new(Tape::default());
    let old = adder(&tape, vec![asks()]).tool_contract("add", program("pay"));
    let old = old.contract(json!({ "servers": { "files": { "walls": {} } } })).build().unwrap();
    let waiting = old.run(RunRequest::new("go").run("run_1".into())).await.unwrap();

    let open = json!({ "command": ["pay"] });
    let servers = |walls: Value| json!({ "servers": { "files": { "walls": walls } } });
    for (tool, agent, whose) in [
        (&open, servers(json!({})), "tool `add`"),
        (&program("pay"), servers(Value::Null), "MCP server `files`"),
    ] {
        let new = adder(&tape, vec![says("done")]).tool_contract("add", tool.clone());
        let new = new.contract(agent).build().unwrap();
        let refused = new.resume(adopting(&waiting.run_id)).await.unwrap_err();
        let why = layer0::failure::Chain(&refused).to_string();
        let ResumeError::Diverged(diverged) = &refused else { panic!("{why}") };
        assert!(diverged.actual.to_string().contains(whose), "{diverged:?}");
    }
    // A server that is gone needs none.
    let new = adder(&tape, vec![says("done")]).tool_contract("add", program("other"));
    new.build().unwrap().resume(adopting(&waiting.run_id)).await.unwrap();
}

/// Spec: J2w, N4
#[tokio::test]
async fn run_within_walls_is_not_reopened_without() {
    let tape = Arc::new(Tape::default());
    let walled = adder(&tape, vec![]).tool_contract("add", program("pay")).build().unwrap();
    let request = RunRequest::new("go").run("run_1".into());
    walled.run(request).await.unwrap_err();
    let reopening = || ReopenRequest::new("run_1").by("ops").allow_other_agent();
    let open = adder(&tape, vec![says("done")]).build().unwrap();
    open.reopen(reopening()).await.unwrap_err();
    let walled = adder(&tape, vec![says("done")]).tool_contract("add", program("pay"));
    assert_eq!(walled.build().unwrap().reopen(reopening()).await.unwrap().stop, Stop::Completed);
}

/// Spec: J2w
#[tokio::test]
async fn grants_make_the_agent() {
    let tape = Arc::new(Tape::default());
    let old = adder(&tape, vec![asks()]).grant("fs:read:/data/**").build().unwrap();
    let waiting = old.run(RunRequest::new("go").run("run_1".into())).await.unwrap();
    let new = adder(&tape, vec![says("done")]).grant("fs:read:/**").build().unwrap();
    let refused = new.resume(waiting.run_id).await.unwrap_err();
    assert!(matches!(refused, ResumeError::Diverged(_)), "{refused}");
}

/// Spec: J2w. The model is none of what makes the agent, and the record says who was asked.
#[tokio::test]
async fn another_model_is_recorded_once() {
    let tape = Arc::new(Tape::default());
    let old = adder(&tape, vec![asks()]).settings(settings(100)).build().unwrap();
    let waiting = old.run(RunRequest::new("go").run("run_1".into())).await.unwrap();
    let run = &waiting.run_id;
    let new = |answers| adder(&tape, answers).settings(settings(200)).build().unwrap();
    approve(&tape, &waiting.approvals[0].id).await;
    let asks = calls([call("c2", "add", json!({"x": 2, "y": 2}))]);
    let waiting = new(vec![asks]).resume(run.clone()).await.unwrap();
    let model = |events: &[Event]| {
        let definition: Value = current_agent(events).unwrap().definition.read().unwrap();
        definition["runtime"]["model"]["max_output_tokens"].clone()
    };
    assert_eq!(model(&events(&tape, run).await), 200);

    approve(&tape, &waiting.approvals[0].id).await;
    let ended = new(vec![says("done")]).resume(run.clone()).await.unwrap();
    assert_eq!(ended.stop, Stop::Completed);
    let seen = events(&tape, run).await;
    let adopted = seen.iter().filter(|event| {
        matches!(&event.kind, layer0::event::EventKind::RunResumed(it) if it.agent.is_some())
    });
    assert_eq!(adopted.count(), 1);
    assert!(replay(&*tape, run).await.unwrap().is_some());
}
