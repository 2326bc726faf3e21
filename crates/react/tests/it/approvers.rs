//! What approvers answer, and what the runtime refuses (SPEC A1, A4).

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop_event_log::{Decision, EventLog};
use backstop_react::{ApprovalRequest, Approver, DecideError};
use backstop_redact::Redactor;
use backstop_tool::{FnTool, ToolContext, ToolError};
use layer0::stop::Stop;
use serde_json::{Value, json};

use crate::bench::{Bench, call, calls, says, tool_texts};

const KEY: &str = "held-secret-key-4711";

/// Gives these decisions in turn, and keeps what it is told of those that are refused.
#[derive(Clone, Default)]
struct Answers {
    left: Arc<Mutex<Vec<Decision>>>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Answers {
    fn new(decisions: impl IntoIterator<Item = Decision>) -> Self {
        let left: Vec<_> = decisions.into_iter().collect();
        Self { left: Arc::new(Mutex::new(left)), told: Arc::default() }
    }
}

#[async_trait]
impl Approver for Answers {
    async fn decide(&self, _: &ApprovalRequest) -> Option<Decision> {
        let mut left = self.left.lock().unwrap();
        (!left.is_empty()).then(|| left.remove(0))
    }

    async fn refused(&self, _: &ApprovalRequest, why: &DecideError) {
        self.told.lock().unwrap().push(why.to_string());
    }
}

fn pay() -> FnTool {
    FnTool::new("pay", "Pays.", |arguments: Value| async move {
        Ok::<_, ToolError>(format!("paid {arguments}"))
    })
    .map_spec(|mut spec| {
        spec.schema =
            json!({ "type": "object", "properties": { "sum": { "type": "integer" } } }).into();
        spec.approval()
    })
}

fn asks() -> Vec<backstop_provider::ScriptedAnswer> {
    vec![calls([call("c1", "pay", json!({ "sum": 1 }))]), says("done")]
}

/// Spec: A1, A2. Who types no reason says no all the same.
#[tokio::test]
async fn denial_needs_no_reason() {
    for reason in ["", " \t\n"] {
        let bench = Bench::new();
        let answers = Answers::new([Decision::deny("ada", reason)]);
        let outcome = bench.run(bench.agent(asks()).tool(pay()).approver(answers)).await.unwrap();
        let denied = "Denied by ada: no reason was given".to_owned();
        assert_eq!(tool_texts(&outcome), [(denied, true)]);
        assert_eq!(outcome.stop, Stop::Completed);
        assert!(bench.log.open_approvals().await.unwrap().is_empty());
    }
    assert_eq!(Decision::approve("ada").because(" "), Decision::approve("ada"));
}

/// Spec: A1, A3. A running call hears a no as a no.
#[tokio::test]
async fn running_call_hears_a_blank_denial() {
    let bench = Bench::new();
    let tool =
        FnTool::with_context("wipe", "Wipes.", |_: Value, context: ToolContext| async move {
            let given = context.ask_person("Really?", json!({ "type": "object" })).await?;
            Ok::<_, ToolError>(format!("{given:?}"))
        })
        .map_spec(|mut spec| {
            spec.schema = json!({ "type": "object" }).into();
            spec
        });
    let asks = vec![calls([call("c1", "wipe", json!({}))]), says("done")];
    let answers = Answers::new([Decision::deny("ada", "")]);
    let outcome = bench.run(bench.agent(asks).tool(tool).approver(answers)).await.unwrap();
    assert_eq!(tool_texts(&outcome)[0].0, "Declined");
}

/// Spec: A1, A4. Whoever gave it is told, and asked again; a secret is never replaced by what then runs.
#[tokio::test]
async fn refused_answers_are_asked_again() {
    let bench = Bench::new();
    let with = |arguments| Decision::approve("ops").with_arguments(arguments);
    let answers = Answers::new([
        with(json!({ "sum": "one" })),
        with(json!({ "sum": 1, "token": KEY })),
        Decision::approve("ops").with_data(json!({})),
        with(json!({ "sum": 2 })),
    ]);
    let told = Arc::clone(&answers.told);
    let agent = bench.agent(asks()).tool(pay()).approver(answers);
    let outcome = bench.run(agent.redactor(Redactor::new().with_secret(KEY))).await.unwrap();
    assert_eq!(tool_texts(&outcome), [("paid {\"sum\":2}".to_owned(), false)]);
    let told = told.lock().unwrap();
    assert!(told[0].contains("sum must be an integer"), "{told:?}");
    assert_eq!(told[1], "the arguments hold a secret of this process");
    assert_eq!((told.len(), told[2].as_str()), (3, "the decision has data that nothing asks for"));
}

/// Spec: A1. A program that gives the same answer without end leaves the approval open.
#[tokio::test]
async fn refused_answers_end_in_an_open_approval() {
    let bench = Bench::new();
    let same = std::iter::repeat_n(Decision::approve(""), 1_000);
    let answers = Answers::new(same);
    let told = Arc::clone(&answers.told);
    let outcome = bench.run(bench.agent(asks()).tool(pay()).approver(answers)).await.unwrap();
    assert_eq!((outcome.stop, told.lock().unwrap().len()), (Stop::WaitingApproval, 10));
}
