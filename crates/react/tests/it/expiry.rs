//! Approvals that expire, that only some may decide, and that change the call.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::{Decision, Inbox, InboxRequest};
use backstop_provider::{ScriptedAnswer, ScriptedProvider};
use backstop_react::{Agent, ApprovalDesk, DecideError, RunOutcome, replay};
use backstop_tool::{Arguments, JsonText, Tool, ToolContext, ToolError, ToolSpec, tool};
use layer0::Failure;
use layer0::event::{Actor, EventKind};
use layer0::id::ApprovalId;
use layer0::stop::Stop;
use serde_json::json;

use crate::bench::{Bench, call, calls, says, tool_texts, types};

/// Pays an order back.
#[tool(approval(expires_after_ms = 60_000, approvers = ["ops", "lead"]))]
async fn refund(order: u32) -> Result<String, ToolError> {
    Ok(format!("refunded {order}"))
}

fn asks() -> Vec<ScriptedAnswer> {
    vec![calls([call("c1", "refund", json!({"order": 7}))]), says("done")]
}

fn agent(bench: &Bench, answers: Vec<ScriptedAnswer>) -> Agent {
    bench.agent(answers).tool(refund).build().unwrap()
}

/// A run that waits for a decision, and the approval.
async fn waiting(bench: &Bench) -> (Agent, RunOutcome, ApprovalId) {
    let agent = agent(bench, asks());
    let outcome = agent.run("refund order 7").await.unwrap();
    assert_eq!(outcome.stop, Stop::WaitingApproval);
    let approval = &outcome.approvals[0];
    assert_eq!(approval.expires_at, Some(bench.clock.now().after(Duration::from_secs(60))));
    let id = approval.id.clone();
    (agent, outcome, id)
}

async fn pass(bench: &Bench, seconds: u64) {
    let timer = bench.clock.sleep(Duration::from_secs(seconds));
    let (done, over) = tokio::sync::oneshot::channel();
    tokio::spawn(bench.clock.track(Box::pin(async move {
        timer.await;
        let _ = done.send(());
    })));
    over.await.unwrap();
}

/// Spec: A4. Who takes the run next records it; nothing decides it any more, before and after that.
#[tokio::test]
async fn an_expired_approval_is_denied_on_resume() {
    let bench = Bench::new();
    let (agent, waiting, id) = waiting(&bench).await;
    pass(&bench, 60).await;
    for _ in 0..2 {
        let late = agent.approve(&id, "ops").await.unwrap_err();
        assert!(matches!(&late, DecideError::Expired(expired) if *expired == id), "{late}");
        assert_eq!(late.code(), "approval.expired");
        let resumed = self::agent(&bench, vec![says("done")]).resume(waiting.run_id.clone()).await;
        let resumed = resumed.unwrap();
        assert_eq!((&resumed.stop, &*resumed.output), (&Stop::Completed, "done"));
        let text = "Denied: the approval expired without a decision".to_owned();
        assert_eq!(tool_texts(&resumed), [(text, true)]);
    }
    let events = bench.events(&waiting.run_id).await;
    let denied = events.iter().find_map(|event| match &event.kind {
        EventKind::ApprovalDenied(denied) => Some((event.actor, denied.reason.as_str())),
        _ => None,
    });
    assert_eq!(denied, Some((Actor::Runtime, "approval.expired")));
    let told = types(&events);
    let resumed = told.iter().position(|kind| *kind == "run.resumed").unwrap();
    assert_eq!(told[resumed..][..3], ["run.resumed", "approval.denied", "tool.responded"]);
    replay(&*bench.log, &waiting.run_id).await.unwrap();
}

/// Spec: A1, A4. What was accepted in time counts, however late the run goes on.
#[tokio::test]
async fn a_decision_in_time_counts_later() {
    let bench = Bench::new();
    let (agent, waiting, id) = waiting(&bench).await;
    pass(&bench, 59).await;
    agent.approve(&id, "lead").await.unwrap();
    pass(&bench, 1_000).await;
    let resumed = self::agent(&bench, vec![says("done")]).resume(waiting.run_id).await.unwrap();
    assert_eq!(tool_texts(&resumed), [("refunded 7".to_owned(), false)]);
}

/// Spec: A4, D5. A process died between sending the expiry and recording it.
#[tokio::test]
async fn an_expiry_in_the_inbox_is_recorded() {
    let bench = Bench::new();
    let (_, waiting, id) = waiting(&bench).await;
    pass(&bench, 61).await;
    let expire = InboxRequest::Expire { approval: id };
    assert!(bench.log.send(expire, "backstop", bench.clock.now()).await.unwrap());
    let resumed = agent(&bench, vec![says("done")]).resume(waiting.run_id.clone()).await.unwrap();
    assert_eq!(resumed.stop, Stop::Completed);
    let told = types(&bench.events(&waiting.run_id).await);
    assert_eq!(told.iter().filter(|kind| **kind == "approval.denied").count(), 1);
    assert!(bench.log.inbox(&waiting.run_id).await.unwrap().is_empty());
}

/// Spec: A4
#[tokio::test]
async fn only_named_approvers_decide() {
    let bench = Bench::new();
    let (agent, waiting, id) = waiting(&bench).await;
    for refused in [agent.approve(&id, "intern").await, agent.deny(&id, "intern", "never").await] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), "approval.not_approver");
        let text = format!("`intern` may not decide approval `{id}`, only: ops, lead");
        assert_eq!(refused.to_string(), text);
    }
    agent.approve(&id, "ops").await.unwrap();
    let resumed = agent.resume(waiting.run_id).await.unwrap();
    assert_eq!(tool_texts(&resumed), [("refunded 7".to_owned(), false)]);
}

/// Spec: A4
#[tokio::test]
async fn changed_arguments_are_what_runs() {
    let bench = Bench::new();
    let (agent, waiting, id) = waiting(&bench).await;
    let with = |order| Decision::approve("ops").with_arguments(json!({"order": order}));
    let misfit = agent.decide(&id, with(json!("seven"))).await.unwrap_err();
    assert!(matches!(&misfit, DecideError::Arguments(why) if why == "order must be an integer"));
    agent.decide(&id, with(json!(8))).await.unwrap();
    let resumed = agent.resume(waiting.run_id.clone()).await.unwrap();
    assert_eq!(tool_texts(&resumed), [("refunded 8".to_owned(), false)]);
    let events = bench.events(&waiting.run_id).await;
    let granted = events.iter().find_map(|event| match &event.kind {
        EventKind::ApprovalGranted(granted) => granted.arguments.clone(),
        _ => None,
    });
    assert_eq!(granted.unwrap().get(), r#"{"order":8}"#);
    replay(&*bench.log, &waiting.run_id).await.unwrap();
}

/// A tool that needs the capability in its arguments.
struct Reads(ToolSpec);

#[async_trait]
impl Tool for Reads {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn needs(&self, arguments: &Arguments) -> Result<Vec<String>, ToolError> {
        Ok(vec![format!("fs:read:/{}", arguments["file"].as_str().unwrap_or_default())])
    }

    async fn call(&self, arguments: &Arguments, _: &ToolContext) -> Result<JsonText, ToolError> {
        Ok(arguments.text().clone())
    }
}

/// Spec: A4, Y1. A person cannot grant by changing the call what policy does not.
#[tokio::test]
async fn changed_arguments_are_asked_of_policy() {
    let bench = Bench::new();
    let spec = ToolSpec::new("reads", "Reads.", json!({"type": "object"})).approval();
    let answers = vec![calls([call("c1", "reads", json!({"file": "a"}))]), says("done")];
    let agent = bench.agent(answers).tool(Reads(spec)).grant("fs:read:/a").build().unwrap();
    let waiting = agent.run("read").await.unwrap();
    let decision = Decision::approve("ops").with_arguments(json!({"file": "etc"}));
    agent.decide(&waiting.approvals[0].id, decision).await.unwrap();
    let resumed = agent.resume(waiting.run_id.clone()).await.unwrap();
    let (text, is_error) = tool_texts(&resumed).remove(0);
    assert!(is_error && text.starts_with("Permission denied: tool 'reads'"), "{text}");
    replay(&*bench.log, &waiting.run_id).await.unwrap();
}

/// Spec: A4. Without a log there is no inbox; the run sees to it itself.
#[tokio::test]
async fn approvals_expire_without_a_log() {
    let clock = VirtualClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let (shared, desk) = (Arc::new(clock.clone()), ApprovalDesk::default());
    let agent = Agent::builder(ScriptedProvider::new(asks()).with_clock(shared.clone()));
    let agent = agent.clock(shared).tool(refund).approver(desk.clone()).build().unwrap();
    let (done, result) = tokio::sync::oneshot::channel();
    tokio::spawn(clock.track(Box::pin(async move {
        let _ = done.send(agent.run("refund order 7").await);
    })));
    let outcome: RunOutcome = result.await.unwrap().unwrap();
    assert_eq!((&outcome.stop, tool_texts(&outcome)[0].1), (&Stop::Completed, true));
    assert!(desk.open().is_empty(), "it is asked no more");
}
