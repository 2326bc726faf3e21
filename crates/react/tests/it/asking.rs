//! Approvals that ask for data (SPEC A3).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::Clock;
use backstop_event_log::{Decision, Inbox, InboxRequest};
use backstop_provider::{ScriptedAnswer, ScriptedProvider};
use backstop_react::{Agent, ApprovalDesk, ApprovalRequest, Approver, DecideError, replay};
use backstop_redact::Redactor;
use backstop_tool::{Arguments, JsonText, Tool, ToolContext, ToolError, ToolSpec};
use layer0::Failure;
use layer0::event::EventKind;
use layer0::failure::Chain;
use layer0::stop::Stop;
use serde_json::{Value, json};

use crate::bench::{Bench, add, call, calls, on, says, tool_texts, types};

fn day() -> Value {
    json!({"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]})
}

/// Answers with the data that a person gave.
struct Ship(ToolSpec);

fn ship() -> Ship {
    Ship(ToolSpec::new("ship", "Ships an order.", json!({"type": "object"})).asks(day()))
}

#[async_trait]
impl Tool for Ship {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: &Arguments, context: &ToolContext) -> Result<JsonText, ToolError> {
        Ok(context.approval_data.clone().unwrap_or_default())
    }
}

fn asks() -> Vec<ScriptedAnswer> {
    vec![calls([call("c1", "ship", json!({"order": 7}))]), says("done")]
}

fn agent(bench: &Bench, answers: Vec<ScriptedAnswer>) -> Agent {
    bench.agent(answers).tool(ship()).build().unwrap()
}

/// The decision for each approval in this process.
struct Says(Decision);

#[async_trait]
impl Approver for Says {
    async fn decide(&self, _: &ApprovalRequest) -> Option<Decision> {
        Some(self.0.clone())
    }
}

/// Spec: A3. What does not fit is refused, by what code and why; then the approval is open as before.
#[tokio::test]
async fn data_reaches_the_tool_once_it_fits() {
    let bench = Bench::new();
    let agent = agent(&bench, asks());
    let waiting = agent.run("ship order 7").await.unwrap();
    assert_eq!(waiting.stop, Stop::WaitingApproval);
    let id = waiting.approvals[0].id.clone();
    assert_eq!(waiting.approvals[0].schema.as_ref().map(JsonText::value), Some(day()));
    let open = bench.log.open_approvals().await.unwrap().remove(0);
    assert_eq!(open.schema.map(|schema| schema.value()), Some(day()));

    let yes = || Decision::approve("ops");
    let mut denied_with_data = Decision::deny("ops", "no");
    denied_with_data.data = Some(json!({"day": "monday"}).into());
    for (decision, why) in [
        (yes(), "there is none"),
        (yes().with_data(json!({})), "day is required"),
        (yes().with_data(json!({"day": 7})), "day must be a string"),
        (yes().with_data(json!([])), "data must be an object"),
        (denied_with_data, "the decision has data that nothing asks for"),
    ] {
        let refused = agent.decide(&id, decision).await.unwrap_err();
        assert!(refused.to_string().ends_with(why), "{refused}");
        assert_eq!(refused.code(), "input.invalid");
        assert!(refused.hint().is_some());
        assert!(bench.log.inbox(&waiting.run_id).await.unwrap().is_empty());
    }
    agent.decide(&id, yes().with_data(json!({"day": "monday"}))).await.unwrap();
    let resumed = agent.resume(waiting.run_id.clone()).await.unwrap();
    assert_eq!(tool_texts(&resumed), [(r#"{"day":"monday"}"#.to_owned(), false)]);
    let events = bench.events(&waiting.run_id).await;
    let granted = events.iter().find_map(|event| match &event.kind {
        EventKind::ApprovalGranted(granted) => granted.data.clone(),
        _ => None,
    });
    assert_eq!(granted.unwrap().get(), r#"{"day":"monday"}"#);
    replay(&*bench.log, &waiting.run_id).await.unwrap();
}

/// Spec: A3
#[tokio::test]
async fn unasked_data_is_refused() {
    let bench = Bench::new();
    let answers = vec![calls([call("c1", "add", json!({"x": 1, "y": 2}))]), says("done")];
    let agent = bench.agent(answers).tool(add).require_approval("add").build().unwrap();
    let waiting = agent.run("add").await.unwrap();
    let decision = Decision::approve("ops").with_data(json!({}));
    let refused = agent.decide(&waiting.approvals[0].id, decision).await.unwrap_err();
    assert!(matches!(refused, DecideError::UnaskedData), "{refused}");
}

/// Spec: A3. A program that knows of no data, or of another schema, writes into the inbox by itself.
#[tokio::test]
async fn rows_of_the_inbox_have_to_fit_too() {
    for decision in [Decision::approve("ops"), Decision::approve("ops").with_data(json!(7))] {
        let bench = Bench::new();
        let waiting = agent(&bench, asks()).run("ship order 7").await.unwrap();
        let approval = waiting.approvals[0].id.clone();
        let sent = InboxRequest::Decide { approval, decision };
        assert!(bench.log.send(sent, "ops", bench.clock.now()).await.unwrap());
        let resumed = agent(&bench, vec![says("done")]).resume(waiting.run_id).await.unwrap();
        assert_eq!(resumed.stop, Stop::WaitingApproval, "it is not agreed to silently");
    }
}

/// Spec: A3. What was sent under another limit counts; what is sent now is held against this one.
#[tokio::test]
async fn accepted_data_counts_whatever_its_length() {
    let bench = Bench::new();
    let waiting = agent(&bench, asks()).run("ship order 7").await.unwrap();
    let approval = waiting.approvals[0].id.clone();
    let decision = Decision::approve("ops").with_data(json!({"day": "x".repeat(65_536)}));
    let refused = agent(&bench, asks()).decide(&approval, decision.clone()).await.unwrap_err();
    assert!(matches!(refused, DecideError::Data(_)), "{refused}");
    let sent = InboxRequest::Decide { approval, decision };
    assert!(bench.log.send(sent, "ops", bench.clock.now()).await.unwrap());
    let resumed = agent(&bench, vec![says("done")]).resume(waiting.run_id).await.unwrap();
    assert_eq!(resumed.stop, Stop::Completed);
}

/// Spec: A3, A2
#[tokio::test]
async fn an_approver_here_gives_the_data() {
    let monday = || Decision::approve("ops").with_data(json!({"day": "monday"}));
    for (decision, stop, text) in [
        (monday(), Stop::Completed, Some(r#"{"day":"monday"}"#)),
        (Decision::deny("ops", "no"), Stop::Completed, Some("Denied by ops: no")),
        (Decision::approve("ops"), Stop::WaitingApproval, None),
        (Decision::approve("ops").with_data(json!({"day": 7})), Stop::WaitingApproval, None),
    ] {
        let bench = Bench::new();
        let agent = bench.agent(asks()).tool(ship()).approver(Says(decision));
        let outcome = bench.run(agent).await.unwrap();
        assert_eq!(outcome.stop, stop);
        let texts = tool_texts(&outcome);
        assert_eq!(texts.first().map(|(text, _)| text.as_str()), text);
        replay(&*bench.log, &outcome.run_id).await.unwrap();
    }
    let desk = ApprovalDesk::default();
    let bench = Bench::new();
    let agent = bench.agent(asks()).tool(ship()).approver(desk.clone()).build().unwrap();
    let decided = async {
        while desk.open().is_empty() {
            tokio::task::yield_now().await;
        }
        let id = desk.open()[0].approval.id.clone();
        assert!(matches!(desk.approve(&id, "ops"), Err(DecideError::Data(_))));
        desk.decide(&id, monday()).unwrap();
    };
    let (outcome, ()) = tokio::join!(on(&bench, async move { agent.run("input").await }), decided);
    assert_eq!(outcome.unwrap().stop, Stop::Completed);
}

/// Spec: A3, S9. The record holds what the redactor leaves, and the tool gets that.
#[tokio::test]
async fn secrets_in_data_are_redacted() {
    let bench = Bench::new();
    let redactor = Redactor::new().with_secret("held-secret-key");
    let answers = || bench.agent(asks()).tool(ship()).redactor(redactor.clone());
    let agent = answers().build().unwrap();
    let waiting = agent.run("ship order 7").await.unwrap();
    let decision = Decision::approve("ops").with_data(json!({"day": "held-secret-key"}));
    agent.decide(&waiting.approvals[0].id, decision).await.unwrap();
    let resumed = agent.resume(waiting.run_id.clone()).await.unwrap();
    let (text, _) = tool_texts(&resumed).remove(0);
    assert!(text.contains("day") && !text.contains("held-secret-key"), "{text}");
    let record = format!("{:?}", bench.events(&waiting.run_id).await);
    assert!(!record.contains("held-secret-key"));
}

/// Spec: A3, A4
#[tokio::test]
async fn an_approval_for_data_expires() {
    let bench = Bench::new();
    let rule = |answers| {
        let agent = bench.agent(answers).tool(add).approval_asks("add", day());
        agent.approval_expires_after("add", Duration::from_secs(60)).build().unwrap()
    };
    let answers = vec![calls([call("c1", "add", json!({"x": 1, "y": 2}))]), says("done")];
    let agent = rule(answers);
    let waiting = agent.run("add").await.unwrap();
    let id = waiting.approvals[0].id.clone();
    assert!(waiting.approvals[0].schema.is_some() && waiting.approvals[0].expires_at.is_some());
    let clock = Arc::new(bench.clock.clone());
    on(&bench, async move { clock.sleep(Duration::from_secs(61)).await }).await;
    let decision = Decision::approve("ops").with_data(json!({"day": "monday"}));
    let late = agent.decide(&id, decision).await.unwrap_err();
    assert!(matches!(late, DecideError::Expired(_)), "{late}");
    let resumed = rule(vec![says("done")]).resume(waiting.run_id.clone()).await.unwrap();
    assert_eq!(resumed.stop, Stop::Completed);
    assert!(types(&bench.events(&waiting.run_id).await).contains(&"approval.denied"));
}

/// Spec: A3. An approval of before this field reads as one that asks for no data.
#[test]
fn records_of_before_read() {
    let asked =
        r#"{"approval_id":"apr_1","call_id":"c1","tool":"t","arguments":{},"arguments_hash":"0"}"#;
    let EventKind::ApprovalRequested(asked) =
        EventKind::decode("approval.requested", asked).unwrap()
    else {
        panic!("it is one")
    };
    assert_eq!((asked.schema, asked.message), (None, None));
    let granted =
        r#"{"approval_id":"apr_1","call_id":"c1","by":"ops","reason":null,"message":null}"#;
    let EventKind::ApprovalGranted(granted) =
        EventKind::decode("approval.granted", granted).unwrap()
    else {
        panic!("it is one")
    };
    assert_eq!(granted.data, None);
}

/// Spec: A3. What nothing can be held against is not asked for.
#[test]
fn a_schema_that_is_none_builds_no_agent() {
    let build = |schema: Value| {
        let provider = ScriptedProvider::saying(["done"]);
        Agent::builder(provider).tool(add).approval_asks("add", schema).build()
    };
    assert!(build(day()).is_ok());
    let refused = build(json!({"type": "nothing"})).unwrap_err();
    let refused = Chain(&refused).to_string();
    assert!(refused.contains("schema of tool `add`"), "{refused}");
    let spec = ToolSpec::new("ship", "Ships.", json!({"type": "object"})).asks(json!({"type": 7}));
    let provider = ScriptedProvider::saying(["done"]);
    assert!(Agent::builder(provider).tool(Ship(spec)).build().is_err());
}
