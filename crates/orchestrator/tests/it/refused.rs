//! Refused dispatches and messages: each with its code, before anything starts.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use async_trait::async_trait;
use backstop_event_log::{EventLog, MemoryLog, RunFilter, Runs, read_events};
use backstop_orchestrator::OperatorNameError;
use backstop_provider::ScriptedAnswer;
use backstop_react::OperatorTool;
use layer0::error::OperatorError;
use layer0::event::EventKind;
use layer0::failure::Failure;
use layer0::id::WorkflowId;
use layer0::operator::{Answer, Context, Signal, Task};
use layer0::{Operator, Orchestrator};
use serde_json::{Value, json};

use crate::agents::{agent, calling, delegate, has_answers, kinds, payer};
use crate::{Caller, Waits, builder, on, operator, start};

/// Spec: O1. An agent whose tools name an operator that is not there is refused where it is registered.
#[test]
fn a_missing_operator_is_named_at_build() {
    let (clock, log, paid) = (start(), Arc::<MemoryLog>::default(), Arc::<AtomicU32>::default());
    let lead = agent(&clock, &log, |_| ScriptedAnswer::saying("done"));
    let lead = lead.name("lead").tool(OperatorTool::new("paier", "Pays.")).build().unwrap();
    let builder = builder(&clock).operator(payer(&clock, &log, &paid, 0)).operator(lead);
    match builder.build() {
        Err(OperatorNameError::Unknown { operator, source, .. }) => {
            assert_eq!((&*operator, &*source.name), ("lead", "paier"));
            assert_eq!(source.hint().as_deref(), Some("did you mean `payer`?"));
        }
        other => panic!("{:?}", other.map(|_| ())),
    }
}

/// Returns the code of the only answer of a run, and its text.
async fn answer_of(log: &MemoryLog, run: &layer0::id::RunId) -> (String, String) {
    let (_, events) = read_events(log, run).await.unwrap();
    let answers = events.into_iter().filter_map(|event| match event.kind {
        EventKind::ToolResponded(answer) => Some(answer),
        _ => None,
    });
    let answers: Vec<_> = answers.collect();
    assert_eq!(answers.len(), 1);
    let error = answers[0].error.as_ref().unwrap();
    let code = error.code.as_ref().map(ToString::to_string).unwrap_or_default();
    (code, answers[0].output.to_string())
}

/// Spec: O1, O3. An operator that is not there is refused before its dispatch is recorded.
#[tokio::test]
async fn a_missing_operator_is_never_recorded() {
    let (clock, log) = (start(), Arc::<MemoryLog>::default());
    let lead = |tool: &'static str, input: Value| {
        agent(&clock, &log, move |request| match has_answers(request) {
            true => ScriptedAnswer::saying("done"),
            false => ScriptedAnswer::calling(tool, input.clone()),
        })
        .name("lead")
    };
    // By the code of a tool.
    let by_code = lead("delegate", json!({})).tool(delegate).build().unwrap();
    let (other, _) = operator("payers", |_| Ok(Value::Null));
    let orchestrator = builder(&clock).operator(by_code).operator(other).build().unwrap();
    let answer = on(&clock, async move {
        orchestrator.dispatch("lead", Task::text("x"), Context::root()).await.unwrap()
    });
    let run = answer.await.run.unwrap();
    assert!(!kinds(&log, &run).await.contains(&"operator.dispatched"));
    let (_, text) = answer_of(&log, &run).await;
    assert!(text.contains("orch.operator_not_found"), "{text}");
    // By a tool of its name, outside of an orchestrator.
    let tool = OperatorTool::new("payer", "Pays.");
    let by_name = lead("payer", json!({ "input": "x" })).tool(tool).build().unwrap();
    let run = on(&clock, async move { by_name.run("x").await.unwrap() }).await.run_id;
    assert!(!kinds(&log, &run).await.contains(&"operator.dispatched"));
    assert_eq!(answer_of(&log, &run).await.0, "orch.dispatch_failed");
}

/// Takes a number, and answers with text.
struct Strict(Value, Value);

#[async_trait]
impl Operator for Strict {
    fn name(&self) -> &str {
        "strict"
    }
    fn input_schema(&self) -> Option<&Value> {
        Some(&self.0)
    }
    fn output_schema(&self) -> Option<&Value> {
        Some(&self.1)
    }
    async fn run(&self, task: Task, _: &Context) -> Result<Answer, OperatorError> {
        Ok(Answer::from_output(task.input))
    }
}

/// Spec: O1. Input and answer fit their schemas, whichever way the operator is dispatched.
#[tokio::test]
async fn what_does_not_fit_is_refused() {
    let clock = start();
    let strict =
        || Strict(json!({ "type": "integer" }), json!({ "type": "integer", "minimum": 1 }));
    let orchestrator = builder(&clock).operator(strict()).build().unwrap();
    for (input, code) in [
        (json!(7), None),
        (json!("7"), Some("input.invalid")),
        (json!(0), Some("output.unserializable")),
    ] {
        let task = Task::json(input.clone());
        let by_name = orchestrator.dispatch("strict", task.clone(), Context::root()).await;
        let at_hand = orchestrator.perform(Arc::new(strict()), task, Context::root()).await;
        for result in [by_name, at_hand] {
            assert_eq!(result.err().map(|error| error.code()), code, "{input}");
        }
    }
    let asked = Task::json(json!(7)).output_schema(json!({ "type": "string" }));
    let error = orchestrator.dispatch("strict", asked, Context::root()).await.unwrap_err();
    assert_eq!(error.code(), "output.unserializable");
}

/// Spec: O4. What is too deep does not start, whichever way it is dispatched.
#[tokio::test]
async fn what_is_too_deep_is_refused() {
    let clock = start();
    let (leaf, runs) = operator("leaf", |_| Ok(Value::Null));
    let orchestrator = builder(&clock)
        .operator(Caller { name: "outer", calls: "leaf" })
        .operator(leaf)
        .max_depth(0)
        .build()
        .unwrap();
    let error = orchestrator.dispatch("outer", Task::text("x"), Context::root()).await.unwrap_err();
    assert_eq!((error.code(), runs.load(std::sync::atomic::Ordering::SeqCst)), ("orch.depth", 0));
    let mut context = Context::root();
    context.depth = 1;
    let (leaf, _) = operator("leaf", |_| Ok(Value::Null));
    let error = orchestrator.perform(Arc::new(leaf), Task::text("x"), context).await.unwrap_err();
    assert_eq!(error.code(), "orch.depth");
}

/// Spec: O4. A queue that nothing takes from is full one day, in this process and in the record.
#[tokio::test]
async fn a_full_queue_refuses_signals() {
    let (clock, log, paid) = (start(), Arc::<MemoryLog>::default(), Arc::<AtomicU32>::default());
    let shared = Arc::clone(&log) as Arc<dyn EventLog>;
    let waiting = agent(&clock, &log, |request| match has_answers(request) {
        true => ScriptedAnswer::saying("done"),
        false => calling("pay"),
    });
    let waiting = waiting.name("waiting").tool(crate::agents::pay).require_approval("pay");
    let waiting = waiting.state(paid).build().unwrap();
    let orchestrator =
        builder(&clock).operator(waiting).operator(Waits).shared_log(shared).build().unwrap();
    let running = orchestrator.clone();
    on(&clock, async move {
        running.dispatch("waiting", Task::text("x"), Context::root()).await.unwrap()
    })
    .await;
    let run = log.runs(RunFilter::default()).await.unwrap().remove(0).run;
    let recorded = WorkflowId::new(run.as_str());
    // It is polled no further than its first await.
    let mut dispatch = Box::pin(orchestrator.dispatch("waits", Task::text("x"), Context::root()));
    assert!(futures_util::poll!(dispatch.as_mut()).is_pending());
    let here = orchestrator.in_flight().pop().unwrap();
    for id in [recorded, here] {
        for _ in 0..256 {
            orchestrator.signal(&id, Signal::new("look", json!(1))).await.unwrap();
        }
        let error = orchestrator.signal(&id, Signal::new("look", json!(1))).await.unwrap_err();
        assert_eq!(error.code(), "orch.signal_failed");
    }
}
