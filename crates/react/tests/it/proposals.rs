//! Proposals of a tool for a call that a person decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_event_log::Decision;
use backstop_react::{ApprovalRequest, Approver, replay};
use backstop_redact::Redactor;
use backstop_tool::{Arguments, JsonText, Tool, ToolContext, ToolError, ToolSpec};
use layer0::event::EventKind;
use layer0::stop::Stop;
use serde_json::{Value, json};

use crate::bench::{Bench, call, calls, says, tool_texts, types};

/// Answers with the arguments it is run with.
struct Careful {
    spec: ToolSpec,
    proposals: Arc<AtomicUsize>,
}

impl Careful {
    fn new() -> Self {
        let schema = json!({"type": "object", "properties": {"how": {"type": "string"}}});
        let spec = ToolSpec::new("careful", "Asks.", schema).capability("db:write").approval();
        let spec = spec.timeout(Duration::from_secs(3));
        Self { spec, proposals: Arc::default() }
    }
}

#[async_trait]
impl Tool for Careful {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn proposal(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<Option<JsonText>, ToolError> {
        self.proposals.fetch_add(1, Ordering::SeqCst);
        match arguments["how"].as_str().unwrap_or_default() {
            "hang" => std::future::pending().await,
            "panic" => panic!("no idea"),
            "refuse" => Err(ToolError::ExecutionFailed("nothing to do, held-secret-key".into())),
            "say nothing" => Ok(None),
            how => {
                assert!(context.grants.allow("db:write") && !context.grants.allow("fs:read"));
                Ok(Some(json!({"how": how, "diff": "+1 held-secret-key"}).into()))
            }
        }
    }

    async fn call(&self, arguments: &Arguments, _: &ToolContext) -> Result<JsonText, ToolError> {
        Ok(arguments.text().clone())
    }
}

/// An approver that agrees, and keeps the arguments it saw.
#[derive(Clone, Default)]
struct Ada(Arc<std::sync::Mutex<Vec<Value>>>);

#[async_trait]
impl Approver for Ada {
    async fn decide(&self, request: &ApprovalRequest) -> Option<Decision> {
        self.0.lock().unwrap().push(request.approval.arguments.value());
        Some(Decision::approve("ada"))
    }
}

/// Spec: A1, N4
#[tokio::test]
async fn a_person_agrees_to_what_the_tool_proposes() {
    let (bench, ada) = (Bench::new(), Ada::default());
    let answers = vec![
        calls([
            call("c1", "careful", json!({"how": "x"})),
            call("c2", "careful", json!({"how": "say nothing"})),
        ]),
        says("done"),
    ];
    let redactor = Redactor::new().with_secret("held-secret-key");
    let agent = bench.agent(answers).tool(Careful::new()).grant("db:write");
    let outcome = bench.run(agent.redactor(redactor).approver(ada.clone())).await.unwrap();
    assert_eq!(outcome.stop, Stop::Completed);
    let proposed = json!({"how": "x", "diff": "+1 [redacted]"});
    let plain = json!({"how": "say nothing"});
    assert_eq!(*ada.0.lock().unwrap(), [proposed.clone(), plain.clone()]);
    // The proposed arguments are recorded and run; the conversation has the model's own.
    let events = bench.events(&outcome.run_id).await;
    let requested = events.iter().filter_map(|event| match &event.kind {
        EventKind::ToolRequested(requested) => Some(requested.arguments.value()),
        _ => None,
    });
    assert_eq!(requested.collect::<Vec<_>>(), [proposed.clone(), plain]);
    assert_eq!(tool_texts(&outcome)[0].0, JsonText::from(proposed).get());
    assert!(!serde_json::to_string(&outcome.transcript).unwrap().contains("diff\":\"+1\",\"role"));
    replay(&*bench.log, &outcome.run_id).await.unwrap();
}

/// Spec: T3, A1
#[tokio::test]
async fn a_call_that_cannot_work_asks_no_person() {
    for (how, text) in [
        ("refuse", "nothing to do, [redacted]"),
        ("panic", "Tool 'careful' panicked: no idea"),
        ("hang", "Tool 'careful' timed out after 3s"),
    ] {
        let (bench, ada) = (Bench::new(), Ada::default());
        let answers = vec![calls([call("c1", "careful", json!({"how": how}))]), says("done")];
        let redactor = Redactor::new().with_secret("held-secret-key");
        let agent = bench.agent(answers).tool(Careful::new()).grant("db:write");
        let outcome = bench.run(agent.redactor(redactor).approver(ada.clone())).await.unwrap();
        assert_eq!(tool_texts(&outcome), [(text.to_owned(), true)], "{how}");
        assert!(ada.0.lock().unwrap().is_empty(), "{how}");
        let events = bench.events(&outcome.run_id).await;
        assert!(!types(&events).contains(&"approval.requested"), "{how}");
        replay(&*bench.log, &outcome.run_id).await.unwrap();
    }
}

/// Spec: Y1. Nothing is looked at for a call that is not granted.
#[tokio::test]
async fn no_proposal_for_what_policy_denies() {
    let bench = Bench::new();
    let careful = Careful::new();
    let proposals = Arc::clone(&careful.proposals);
    let answers = vec![calls([call("c1", "careful", json!({"how": "x"}))]), says("done")];
    let outcome = bench.run(bench.agent(answers).tool(careful)).await.unwrap();
    let denied = "Permission denied: tool 'careful' requires 'db:write'";
    assert_eq!(tool_texts(&outcome), [(denied.to_owned(), true)]);
    assert_eq!(proposals.load(Ordering::SeqCst), 0);
}
