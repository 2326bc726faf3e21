//! Structured output and packs.

use backstop_event_log::{Inbox, read_events};
use backstop_react::{
    AgentError, Budget, BuildError, Decision, HookPoint, Pack, PackError, RunRequest,
};
use backstop_tool::{ToolError, tool};
use layer0::Timestamp;
use layer0::message::Message;
use layer0::stop::Stop;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::bench::*;

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Verdict {
    cause: String,
    certainty: u8,
}

/// Spec: O1, E4. The model is told what was wrong once, and reads the schema from the start.
#[tokio::test]
async fn unfit_answer_is_sent_back_once() {
    let bench = Bench::new();
    let answers = vec![
        says(r#"{"cause": "a leak", "certainty": "high"}"#),
        says("```json\n{\"cause\": \"a leak\", \"certainty\": 9}\n```"),
    ];
    let agent = bench.agent(answers).build().unwrap();
    let answer = agent.run_typed::<Verdict>("why?").await.unwrap();
    assert_eq!(answer.value, Some(Verdict { cause: "a leak".into(), certainty: 9 }));
    assert_eq!(answer.outcome.usage.model_calls, 1, "asking again is no call of its own");
    let messages = answer.outcome.transcript.messages();
    let Message::System { content } = &*messages[0] else { panic!("{messages:?}") };
    assert!(content.contains("\"certainty\""), "{content}");
    let Message::User { content, .. } = &*messages[3] else { panic!("{messages:?}") };
    assert!(content.contains("certainty must be an integer"), "{content}");
}

/// Spec: O1, E4
#[tokio::test]
async fn a_second_misfit_fails_the_run() {
    let bench = Bench::new();
    let agent = bench.agent(vec![says("because"), says("{\"cause\": 1}")]).build().unwrap();
    let failure = agent.run_typed::<Verdict>("why?").await.unwrap_err();
    let AgentError::OutputSerialization(why) = &failure.error else { panic!("{failure:#}") };
    assert!(why.contains("cause must be a string"), "{why}");
    assert_eq!(failure.code(), "output.unserializable");
    assert_eq!(&*failure.partial, "{\"cause\": 1}");
    let events = bench.events(&failure.run_id).await;
    assert_eq!(types(&events).last(), Some(&"run.failed"));
}

/// Spec: O1. What stopped early has no value, and an unusable schema never starts.
#[tokio::test]
async fn a_run_that_stops_has_no_value() {
    let bench = Bench::new();
    let budget = Budget::new().model_calls(1);
    let agent = bench.agent(vec![says("because")]).budget(budget).build().unwrap();
    let answer = agent.run_typed::<Verdict>("why?").await.unwrap();
    assert_eq!(answer.value, None);
    assert!(matches!(answer.outcome.stop, Stop::BudgetExhausted { .. }));

    let request = RunRequest::new("why?").output_schema(json!({"type": "strin"}));
    let failure = agent.run(request).await.unwrap_err();
    assert_eq!(failure.code(), "input.invalid");
    assert!(read_events(&*bench.log, &failure.run_id).await.is_err(), "it never started");
}

/// Pay an amount.
#[tool(approval)]
async fn pay(cents: u32) -> Result<String, ToolError> {
    Ok(format!("paid {cents}"))
}

/// Spec: O1, D6, A1. The answer's schema is the run's, and part of what it is resumed by.
#[tokio::test]
async fn typed_run_resumes_with_its_own_agent() {
    let bench = Bench::new();
    let agent = |answers| bench.agent(answers).tool(pay).build().unwrap();
    let asks = calls([call("c1", "pay", json!({ "cents": 7 }))]);
    let waiting = agent(vec![asks]).run_typed::<Verdict>("why?").await.unwrap().outcome;
    assert_eq!(waiting.stop, Stop::WaitingApproval);
    let approval = &waiting.approvals[0].id;
    assert!(
        bench.log.decide(approval, Decision::approve("ada"), Timestamp::default()).await.unwrap()
    );
    let misfits = says("because");
    let fits = says(r#"{"cause": "a leak", "certainty": 9}"#);
    let outcome = agent(vec![misfits, fits]).resume(waiting.run_id).await.unwrap();
    assert_eq!(outcome.text(), r#"{"cause": "a leak", "certainty": 9}"#);
}

struct Audit;

#[async_trait::async_trait]
impl backstop_react::Observer for Audit {
    fn name(&self) -> &str {
        "audit"
    }
    fn points(&self) -> &[HookPoint] {
        &[HookPoint::RunStart]
    }
    async fn observe(
        &self,
        _: backstop_react::Moment<'_>,
        _: &backstop_react::HookContext,
    ) -> Result<(), layer0::error::BoxError> {
        Ok(())
    }
}

/// Spec: X7
#[tokio::test]
async fn a_pack_brings_what_belongs_together_once() {
    let bench = Bench::new();
    let pack = || Pack::new("math").tool(add).observer(Audit).grant("network:outbound");
    let answers = vec![calls([call("c1", "add", json!({"x": 1, "y": 2}))]), says("3")];
    let outcome = bench.run(bench.agent(answers).pack(pack())).await.unwrap();
    assert_eq!(tool_texts(&outcome)[0].0, "3");

    let refused = |agent: backstop_react::AgentBuilder| match agent.build().unwrap_err() {
        BuildError::Pack(error) => error,
        other => panic!("{other}"),
    };
    let twice = refused(bench.agent(vec![]).pack(pack()).pack(pack().version("2.0.0")));
    assert!(matches!(&twice, PackError::Twice { .. }), "{twice:?}");
    assert_eq!(twice.to_string(), "pack `math 2.0.0` is loaded beside `math`");
    let clash = refused(bench.agent(vec![]).tool(add).pack(pack()));
    assert_eq!(clash.to_string(), "pack `math` brings `add`, which the agent itself has already");
    let clash = refused(bench.agent(vec![]).pack(pack()).pack(Pack::new("other").observer(Audit)));
    assert_eq!(clash.to_string(), "pack `other` brings `audit`, which pack `math` has already");
    let told = |name| Pack::new(name).prompt("sums", "Add twice.");
    let clash = refused(bench.agent(vec![]).pack(told("one")).pack(told("two")));
    assert_eq!(clash.to_string(), "pack `two` brings `sums`, which pack `one` has already");
    let outcome =
        bench.run(bench.agent(vec![says("3")]).instructions("Be brief.").pack(told("one")));
    let transcript = outcome.await.unwrap().transcript;
    let first = format!("{:?}", transcript.messages().first());
    assert!(first.contains("Be brief.\\n\\nAdd twice."), "{first}");
}

#[tokio::test]
async fn approval_of_an_unknown_tool_is_a_mistake() {
    let bench = Bench::new();
    let error = bench.agent(vec![]).tool(add).require_approval("ad").build().unwrap_err();
    let BuildError::ToolNotFound(missing) = &error else { panic!("{error}") };
    assert_eq!(missing.nearest.as_deref(), Some("add"));
    let answers = vec![calls([call("c1", "add", json!({"x": 1, "y": 2}))]), says("3")];
    let agent = bench.agent(answers).tool(add).require_approval("add");
    assert_eq!(bench.run(agent).await.unwrap().stop, Stop::WaitingApproval);
}
