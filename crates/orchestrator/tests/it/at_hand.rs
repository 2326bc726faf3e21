//! Operators that the caller has at hand, without a place in the orchestrator.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use async_trait::async_trait;
use backstop_event_log::{MemoryLog, RunFilter, Runs, read_events};
use backstop_provider::ScriptedAnswer;
use backstop_react::{Agent, Budget, OperatorTool, Price, replay};
use backstop_tool::{ToolContext, ToolError, tool};
use layer0::error::OperatorError;
use layer0::event::EventKind;
use layer0::failure::Failure;
use layer0::message::Message;
use layer0::operator::{Answer, Context, Task};
use layer0::{Operator, Orchestrator};
use serde_json::{Value, json};

use crate::agents::{agent, calling, has_answers, kinds, payer};
use crate::{builder, on, operator, start};

/// Runs an agent that it has at hand.
struct AtHand(Agent);

#[async_trait]
impl Operator for AtHand {
    fn name(&self) -> &str {
        "middle"
    }
    async fn run(&self, task: Task, context: &Context) -> Result<Answer, OperatorError> {
        let orchestrator = context.orchestrator.as_ref().unwrap();
        assert!(orchestrator.can_go_on("payer"), "it keeps a record");
        let answer = orchestrator.perform(Arc::new(self.0.clone()), task, context.below()).await;
        let answer = answer.map_err(|error| OperatorError::sub_dispatch("worker", error))?;
        Ok(Answer::from_output(answer.output))
    }
}

/// Spec: O2, O5. An agent that it has at hand is the caller of what that agent dispatches: it records each
/// attempt, and what they used counts once.
#[tokio::test]
async fn agent_at_hand_is_caller_of_its_dispatches() {
    let (clock, log, paid) = (start(), Arc::<MemoryLog>::default(), Arc::<AtomicU32>::default());
    let worker = agent(&clock, &log, |request| match has_answers(request) {
        true => ScriptedAnswer::saying("done"),
        false => ScriptedAnswer::calling("payer", json!({ "input": "pay it" })),
    });
    let worker = worker.name("worker").tool(OperatorTool::new("payer", "Pays.")).build().unwrap();
    let orchestrator = builder(&clock)
        .operator(AtHand(worker))
        .operator(payer(&clock, &log, &paid, 3))
        .build()
        .unwrap();
    let answer = on(&clock, async move {
        orchestrator.dispatch("middle", Task::text("x"), Context::root()).await.unwrap()
    })
    .await;
    assert_eq!(answer.output, "done");
    let runs = log.runs(RunFilter::default()).await.unwrap();
    let run = |agent: &str| runs.iter().find(|run| &*run.agent == agent).unwrap();
    let (worker, payer) = (run("worker"), run("payer"));
    assert_eq!(payer.parent.as_ref(), Some(&worker.run));
    let (_, events) = read_events(&*log, &worker.run).await.unwrap();
    let attempts = events.iter().filter_map(|event| match &event.kind {
        EventKind::OperatorDispatched(dispatched) => Some(dispatched.attempt),
        _ => None,
    });
    assert_eq!(attempts.collect::<Vec<_>>(), [1, 2]);
    assert_eq!(worker.usage.model_attempts, 2 + payer.usage.model_attempts);
    assert_eq!(answer.usage.model_attempts, worker.usage.model_attempts);
    for run in &runs {
        replay(&*log, &run.run).await.unwrap();
    }
}

/// Asks an operator of its own.
#[tool]
async fn estimate(context: &ToolContext) -> Result<Value, ToolError> {
    let operators = context.operators.as_ref().unwrap();
    assert!(operators.can_go_on("lead") && !operators.can_go_on("estimator"));
    let (estimator, _) = operator("estimator", |_| Ok(json!(5)));
    let answer = operators.perform(Arc::new(estimator), Task::text("x"), Context::root()).await;
    Ok(answer.map_err(|error| ToolError::ExecutionFailed(error.to_string()))?.output)
}

/// Spec: O2. A tool runs an operator that it has at hand as one that is registered: below its run.
#[tokio::test]
async fn a_tool_runs_an_operator_at_hand() {
    let (clock, log) = (start(), Arc::<MemoryLog>::default());
    let lead = agent(&clock, &log, |request| match has_answers(request) {
        true => ScriptedAnswer::saying("done"),
        false => calling("estimate"),
    });
    let lead = lead.name("lead").tool(estimate).build().unwrap();
    let orchestrator = builder(&clock).operator(lead).build().unwrap();
    let answer = on(&clock, async move {
        orchestrator.dispatch("lead", Task::text("x"), Context::root()).await.unwrap()
    })
    .await;
    assert_eq!(answer.output, "done");
    let run = answer.run.unwrap();
    let kinds = kinds(&log, &run).await;
    let below: Vec<_> = kinds.iter().filter(|kind| kind.starts_with("operator.")).collect();
    assert_eq!(below, [&"operator.dispatched", &"operator.returned"]);
    let (_, events) = read_events(&*log, &run).await.unwrap();
    let answered = events.iter().find_map(|event| match &event.kind {
        EventKind::ToolResponded(answer) => Some(answer.error.is_none()),
        _ => None,
    });
    assert_eq!(answered, Some(true));
    replay(&*log, &run).await.unwrap();
}

/// An operator without a price.
struct Unpriced;

#[async_trait]
impl Operator for Unpriced {
    fn name(&self) -> &str {
        "unpriced"
    }
    fn is_priced(&self) -> bool {
        false
    }
    async fn run(&self, _: Task, _: &Context) -> Result<Answer, OperatorError> {
        Ok(Answer::from_output(json!("spent")))
    }
}

/// Has something done that has no price.
#[tool]
async fn spend(context: &ToolContext) -> Result<Value, ToolError> {
    let operators = context.operators.as_ref().unwrap();
    let error = operators.perform(Arc::new(Unpriced), Task::text("x"), Context::root()).await;
    Ok(json!(error.unwrap_err().code()))
}

/// Spec: B1. An operator at hand without a price does not start while its caller has a cost budget.
#[tokio::test]
async fn unpriced_operator_at_hand_does_not_start() {
    let (clock, log) = (start(), Arc::<MemoryLog>::default());
    let lead = agent(&clock, &log, |request| {
        match request.messages.messages().last().map(|last| &**last) {
            Some(Message::Tool { content, .. }) => ScriptedAnswer::saying(content.to_string()),
            _ => calling("spend"),
        }
    });
    let lead = lead
        .name("lead")
        .price(Price::new(1.0, 1.0))
        .budget(Budget::new().cost_usd(1.0))
        .tool(spend)
        .build()
        .unwrap();
    let orchestrator = builder(&clock).operator(lead).build().unwrap();
    let answer = on(&clock, async move {
        orchestrator.dispatch("lead", Task::text("x"), Context::root()).await.unwrap()
    })
    .await;
    assert_eq!(answer.output, "orch.price_unknown");
}
