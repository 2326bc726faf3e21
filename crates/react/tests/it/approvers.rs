//! Decisions of approvers, and refusals by the runtime (SPEC A1, A4).

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop_event_log::{Decision, Inbox};
use backstop_react::{
    ApprovalRequest, Approver, DecideError, Gate, GateVerdict, HookContext, HookPoint, Moment,
};
use backstop_redact::Redactor;
use backstop_tool::{FnTool, ToolContext, ToolError};
use layer0::error::BoxError;
use layer0::stop::Stop;
use serde_json::{Value, json};

use crate::bench::{Bench, call, calls, says, tool_texts};

const KEY: &str = "held-secret-key-4711";

/// An approver that gives these decisions in turn, and keeps the reasons of refusals.
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

    async fn receive_refusal(&self, _: &ApprovalRequest, why: &DecideError) {
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

/// A gate that skips sums above 1,000, and replaces other sums as configured.
struct Cap {
    seen: Arc<Mutex<Vec<i64>>>,
    makes: Option<Value>,
}

#[async_trait]
impl Gate for Cap {
    fn name(&self) -> &str {
        "cap"
    }

    fn points(&self) -> &[HookPoint] {
        &[HookPoint::BeforeTool]
    }

    async fn judge(&self, moment: Moment<'_>, _: &HookContext) -> Result<GateVerdict, BoxError> {
        let Moment::BeforeTool { call, .. } = moment else { return Ok(GateVerdict::Continue) };
        let sum = call.arguments.value()["sum"].as_i64().unwrap_or_default();
        self.seen.lock().unwrap().push(sum);
        Ok(match &self.makes {
            _ if sum > 1_000 => GateVerdict::Abort("nobody pays more than 1,000".into()),
            Some(sum) => GateVerdict::ReplaceArguments(json!({ "sum": sum }).into()),
            None => GateVerdict::Continue,
        })
    }
}

/// Spec: A4, T2. Gates judge what runs: a person's own arguments too, as they are, here and after a resume.
#[tokio::test]
async fn gates_judge_arguments_of_a_person() {
    let paid = |sum: i64| format!("paid {{\"sum\":{sum}}}");
    for (given, makes, seen, told) in [
        (Some(2_000), None, vec![1, 2_000], "Skipped by hook 'cap': nobody pays more".to_owned()),
        (Some(500), None, vec![1, 500], paid(500)),
        (Some(500), Some(json!(3)), vec![1, 500], "Skipped by hook 'cap': it changes".to_owned()),
        (None, Some(json!(3)), vec![1], paid(3)),
        (None, Some(json!(KEY)), vec![1], "Skipped by hook 'cap': the arguments".to_owned()),
    ] {
        for is_here in [true, false] {
            let bench = Bench::new();
            let shown = Arc::new(Mutex::new(Vec::new()));
            let decision = Decision::approve("ops");
            let decision = match given {
                Some(sum) => decision.with_arguments(json!({ "sum": sum })),
                None => decision,
            };
            let agent = |answers| {
                let gate = Cap { seen: Arc::clone(&shown), makes: makes.clone() };
                let redactor = Redactor::new().with_secret(KEY);
                bench.agent(answers).tool(pay()).gate(gate).redactor(redactor)
            };
            let outcome = match is_here {
                true => {
                    let answers = Answers::new([decision]);
                    bench.run(agent(asks()).approver(answers)).await.unwrap()
                }
                false => {
                    let waiting = bench.run(agent(asks())).await.unwrap();
                    let agent = agent(vec![says("done")]).build().unwrap();
                    if let Some(approval) = waiting.approvals.first() {
                        agent.decide(&approval.id, decision).await.unwrap();
                        agent.resume(waiting.run_id).await.unwrap()
                    } else {
                        waiting
                    }
                }
            };
            let text = &tool_texts(&outcome)[0].0;
            assert!(text.starts_with(&told), "{given:?} {makes:?}: {text}");
            assert_eq!(*shown.lock().unwrap(), seen, "{given:?} {makes:?}");
        }
    }
}

/// Spec: A2, G2, T9. Numbers that say the same to the tool make the same call.
#[tokio::test]
async fn denied_call_is_the_same_in_other_numbers() {
    let bench = Bench::new();
    let ask = |id: &str, sum: Value| calls([call(id, "pay", json!({ "sum": sum }))]);
    let answers = vec![ask("c1", json!(7)), ask("c2", json!(7.0)), says("done")];
    let decisions = Answers::new([Decision::deny("ada", "no"), Decision::approve("ada")]);
    let outcome = bench.run(bench.agent(answers).tool(pay()).approver(decisions)).await.unwrap();
    let texts = tool_texts(&outcome);
    assert!(texts.iter().all(|(text, _)| text.starts_with("Denied by ada: no")), "{texts:?}");
    assert_eq!(outcome.stop, Stop::Completed);
}
