//! Agents as operators: retried by continuing, signalled, dropped, out of time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::{EventLog, Log, MemoryLog, RunFilter, RunState, Runs, read_events};
use backstop_orchestrator::LocalOrchestrator;
use backstop_provider::{
    ErrorKind, ModelRequest, ScriptedAnswer, ScriptedProvider, ScriptedToolCall,
};
use backstop_react::{
    Agent, AgentBuilder, Budget, Limits, OperatorTool, Price, ReopenRequest, ResumeRequest,
    RunRequest, replay,
};
use backstop_tool::{ToolContext, ToolError, tool};
use layer0::Orchestrator;
use layer0::event::EventKind;
use layer0::id::{RunId, WorkflowId};
use layer0::message::Message;
use layer0::operator::{Context, Signal, Task};
use layer0::stop::Stop;
use serde_json::{Value, json};

use crate::{builder, on, start};

/// Pays, and counts how often.
#[tool]
pub(crate) async fn pay(context: &ToolContext) -> Result<String, ToolError> {
    let paid: &Arc<AtomicU32> = context.state().unwrap();
    paid.fetch_add(1, Ordering::SeqCst);
    Ok("paid".into())
}

pub(crate) fn agent(
    clock: &VirtualClock,
    log: &Arc<MemoryLog>,
    answer: impl Fn(&ModelRequest) -> ScriptedAnswer + Send + Sync + 'static,
) -> AgentBuilder {
    let clock: Arc<dyn Clock> = Arc::new(clock.clone());
    Agent::builder(ScriptedProvider::from_fn(answer).with_clock(Arc::clone(&clock)))
        .clock(clock)
        .shared_log(Arc::clone(log) as Arc<dyn EventLog>)
}

pub(crate) fn has_answers(request: &ModelRequest) -> bool {
    request.messages.messages().iter().any(|message| matches!(**message, Message::Tool { .. }))
}

pub(crate) fn calling(name: &str) -> ScriptedAnswer {
    ScriptedAnswer::default().tool_calls([ScriptedToolCall::new("c1", name, json!({}))])
}

/// Returns an agent that pays, then fails as often as asked because its model is unavailable, then answers.
pub(crate) fn payer(
    clock: &VirtualClock,
    log: &Arc<MemoryLog>,
    paid: &Arc<AtomicU32>,
    away: u32,
) -> Agent {
    let left = Mutex::new(away);
    let answer = move |request: &ModelRequest| {
        if !has_answers(request) {
            return calling("pay");
        }
        let mut left = left.lock().unwrap();
        match *left {
            0 => ScriptedAnswer::saying("it is paid"),
            _ => {
                *left -= 1;
                ScriptedAnswer::failing(ErrorKind::Transient)
            }
        }
    };
    agent(clock, log, answer).name("payer").tool(pay).state(Arc::clone(paid)).build().unwrap()
}

/// Has it paid.
#[tool]
pub(crate) async fn delegate(context: &ToolContext) -> Result<Value, ToolError> {
    let answer = context.dispatch("payer", Task::text("pay it")).await;
    Ok(answer.map_err(|error| ToolError::ExecutionFailed(error.to_string()))?.output)
}

pub(crate) async fn kinds(log: &MemoryLog, run: &RunId) -> Vec<&'static str> {
    let (_, events) = read_events(log, run).await.unwrap();
    events.iter().map(|event| event.kind.event_type()).collect()
}

/// Spec: O5, D12. An operator that gave up goes on where it failed; what it did is not done again.
#[tokio::test]
async fn a_failed_agent_goes_on_where_it_failed() {
    let (clock, log, paid) = (start(), Arc::<MemoryLog>::default(), Arc::<AtomicU32>::default());
    let orchestrator = builder(&clock).operator(payer(&clock, &log, &paid, 3)).build().unwrap();
    let answer = on(&clock, async move {
        orchestrator.dispatch("payer", Task::text("pay it"), Context::root()).await
    });
    let answer = answer.await.unwrap();
    assert_eq!((answer.output, answer.stop), (json!("it is paid"), Stop::Completed));
    assert_eq!(paid.load(Ordering::SeqCst), 1, "the call was answered before it failed");
    let run = answer.run.unwrap();
    let kinds = kinds(&log, &run).await;
    assert_eq!(kinds.iter().filter(|kind| **kind == "run.reopened").count(), 1);
    assert_eq!(answer.usage.model_attempts, 5, "three of them failed");
    assert!(clock.now().since(layer0::Timestamp::default()) >= Duration::from_secs(30));
    replay(&*log, &run).await.unwrap();
}

/// Spec: O5. It does not go on for ever.
#[tokio::test]
async fn an_agent_that_keeps_failing_is_given_up() {
    let (clock, log, paid) = (start(), Arc::<MemoryLog>::default(), Arc::<AtomicU32>::default());
    let orchestrator = builder(&clock).operator(payer(&clock, &log, &paid, 99)).build().unwrap();
    let error = on(&clock, async move {
        orchestrator.dispatch("payer", Task::text("pay it"), Context::root()).await
    });
    let error = error.await.unwrap_err();
    // Five failures in a row open the breaker of its model, and the probe fails too.
    assert_eq!(layer0::failure::Failure::code(&error), "provider.transient");
    let chain = layer0::failure::chain(&error);
    assert!(chain.contains(&"gave up after 2 attempts".to_owned()), "{chain:?}");
    let run = log.runs(RunFilter::default()).await.unwrap().remove(0);
    assert_eq!(run.reopens, 1);
    assert_eq!(paid.load(Ordering::SeqCst), 1);
}

/// Spec: O2, O3, O5. A tool dispatches through the orchestrator of its run; each attempt is recorded there.
#[tokio::test]
async fn a_tool_dispatches_through_the_orchestrator() {
    let (clock, log, paid) = (start(), Arc::<MemoryLog>::default(), Arc::<AtomicU32>::default());
    let lead = agent(&clock, &log, |request| match has_answers(request) {
        true => ScriptedAnswer::saying("done"),
        false => calling("delegate"),
    });
    // The wait between two attempts is the tool's time.
    let limits = Limits::new().tool_timeout(Duration::from_secs(60));
    let lead = lead.name("lead").tool(delegate).limits(limits).build().unwrap();
    let orchestrator =
        builder(&clock).operator(payer(&clock, &log, &paid, 3)).operator(lead).build().unwrap();
    let answer = on(&clock, async move {
        orchestrator.dispatch("lead", Task::text("see to it"), Context::root()).await
    });
    let answer = answer.await.unwrap();
    assert_eq!(answer.output, "done");
    assert_eq!(paid.load(Ordering::SeqCst), 1);
    let lead = answer.run.unwrap();
    let (_, events) = read_events(&*log, &lead).await.unwrap();
    let mut attempts = Vec::new();
    let mut runs = Vec::new();
    for event in &events {
        match &event.kind {
            EventKind::OperatorDispatched(dispatched) => {
                attempts.push(dispatched.attempt);
                runs.push(dispatched.run.clone());
            }
            EventKind::OperatorReturned(returned) => runs.push(returned.run.clone()),
            _ => {}
        }
    }
    assert_eq!(attempts, [1, 2]);
    runs.dedup();
    let [payer] = &runs[..] else { panic!("one run: {runs:?}") };
    let summary = log.summary(payer).await.unwrap().unwrap();
    assert_eq!((summary.parent.as_ref(), summary.reopens), (Some(&lead), 1));
    assert_eq!(answer.usage.model_attempts, 2 + summary.usage.model_attempts);
    for run in [payer, &lead] {
        replay(&*log, run).await.unwrap();
    }
}

/// Spec: B1, O2. An operator without a price does not start while its caller has a cost budget.
#[tokio::test]
async fn an_operator_without_a_price_does_not_start() {
    let (clock, log, paid) = (start(), Arc::<MemoryLog>::default(), Arc::<AtomicU32>::default());
    let lead = agent(&clock, &log, |request| match has_answers(request) {
        true => ScriptedAnswer::saying("done"),
        false => ScriptedAnswer::calling("payer", json!({ "input": "pay it" })),
    });
    let lead = lead
        .name("lead")
        .price(Price::new(1.0, 1.0))
        .budget(Budget::new().cost_usd(1.0))
        .tool(OperatorTool::new("payer", "Pays."))
        .build()
        .unwrap();
    let orchestrator =
        builder(&clock).operator(payer(&clock, &log, &paid, 0)).operator(lead).build().unwrap();
    let answer =
        on(
            &clock,
            async move { orchestrator.dispatch("lead", Task::text("x"), Context::root()).await },
        );
    let answer = answer.await.unwrap();
    assert_eq!(answer.output, "done");
    assert_eq!(paid.load(Ordering::SeqCst), 0);
    let (_, events) = read_events(&*log, &answer.run.unwrap()).await.unwrap();
    let codes = events.iter().filter_map(|event| match &event.kind {
        EventKind::ToolResponded(answer) => answer.error.as_ref()?.code.clone(),
        _ => None,
    });
    assert_eq!(codes.collect::<Vec<_>>(), ["orch.price_unknown".into()]);
    assert_eq!(log.runs(RunFilter::default()).await.unwrap().len(), 1);
}

/// Waits for its model for an hour.
pub(crate) fn slow(clock: &VirtualClock, log: &Arc<MemoryLog>) -> Agent {
    let answer = |_: &ModelRequest| ScriptedAnswer::saying("late").delay_ms(3_600_000);
    agent(clock, log, answer).name("slow").build().unwrap()
}

/// Spec: O2, O4. What is sent by the run's id reaches it, through whichever orchestrator of the log.
#[tokio::test]
async fn signals_go_by_the_id_of_the_run() {
    let (clock, log) = (start(), Arc::<MemoryLog>::default());
    let held = clock.hold();
    let shared = || Arc::clone(&log) as Arc<dyn EventLog>;
    let orchestrator =
        builder(&clock).operator(slow(&clock, &log)).shared_log(shared()).build().unwrap();
    let other = LocalOrchestrator::builder().shared_log(shared()).build().unwrap();
    let running = orchestrator.clone();
    let task = tokio::spawn(clock.track(Box::pin(async move {
        let answer = running.dispatch("slow", Task::text("x"), Context::root()).await.unwrap();
        assert_eq!(answer.stop, Stop::Cancelled);
    })));
    let id = loop {
        let runs = log.runs(RunFilter::default()).await.unwrap();
        match runs.first().filter(|run| run.usage.model_calls == 1) {
            Some(run) => break WorkflowId::new(run.run.as_str()),
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!(orchestrator.in_flight(), std::slice::from_ref(&id));
    for signal in [
        Signal::new("look", json!({ "at": [1] })),
        Signal::new("input", json!("and hurry")),
        Signal::cancel(),
    ] {
        other.signal(&id, signal).await.unwrap();
    }
    task.await.unwrap();
    drop(held);
    let run = RunId::new(id.as_str());
    let (_, events) = read_events(&*log, &run).await.unwrap();
    let names: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::SignalReceived(signal) => Some(signal.name.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(names.last().map(String::as_str), Some("cancel"));
    let told = other.query(&id).await.unwrap();
    assert_eq!((&told["state"], &told["outcome"]), (&json!("finished"), &json!("cancelled")));
    assert_eq!(
        told["events"].as_array().map(|events| events.last().unwrap()["type"].clone()),
        Some(json!("run.finished"))
    );
    // It is over.
    assert!(other.signal(&id, Signal::cancel()).await.is_err());
    assert!(other.query(&"run_none".into()).await.is_err());
}

/// Spec: O2. Nothing is left behind by a dispatch that is not waited for any more.
#[tokio::test]
async fn a_dropped_dispatch_closes_its_record() {
    let (clock, log) = (start(), Arc::<MemoryLog>::default());
    let held = clock.hold();
    let orchestrator = builder(&clock).operator(slow(&clock, &log)).build().unwrap();
    let task = tokio::spawn(async move {
        orchestrator.dispatch("slow", Task::text("x"), Context::root()).await
    });
    let is_asked = async || {
        let runs = log.runs(RunFilter::default()).await.unwrap();
        runs.first().is_some_and(|run| run.usage.model_calls == 1)
    };
    while !is_asked().await {
        tokio::task::yield_now().await;
    }
    task.abort();
    let run = loop {
        let run = log.runs(RunFilter::default()).await.unwrap().remove(0);
        if !run.is_open() {
            break run;
        }
        tokio::task::yield_now().await;
    };
    drop(held);
    assert_eq!((run.state, run.reason), (RunState::Finished, Some("run.cancelled".into())));
}

/// Spec: O2, O4. A run that was started ends with its deadline, with a closed record.
#[tokio::test]
async fn an_agent_ends_with_its_deadline() {
    let (clock, log) = (start(), Arc::<MemoryLog>::default());
    let orchestrator = builder(&clock).operator(slow(&clock, &log)).build().unwrap();
    let mut context = Context::root();
    context.deadline = Some(clock.now().after(Duration::from_secs(5)));
    let answer =
        on(&clock, async move { orchestrator.dispatch("slow", Task::text("x"), context).await });
    let answer = answer.await.unwrap();
    assert_eq!(answer.stop.reason(), Some("budget.wall_time".into()));
    assert_eq!(clock.now().since(layer0::Timestamp::default()), Duration::from_secs(5));
    let run = log.summary(&answer.run.unwrap()).await.unwrap().unwrap();
    assert_eq!(run.state, RunState::Finished);
}

/// Spec: O2, D12. A root that its agent runs itself dispatches by name, also once it is reopened or resumed;
/// the retry layer does not try it again.
#[tokio::test]
async fn roots_dispatch_through_an_orchestrator() {
    let (clock, log, paid) = (start(), Arc::<MemoryLog>::default(), Arc::<AtomicU32>::default());
    let calls = AtomicU32::new(0);
    let lead = agent(&clock, &log, move |_| match calls.fetch_add(1, Ordering::SeqCst) {
        0 | 2 => ScriptedAnswer::calling("payer", json!({ "input": "pay it" })),
        1 => ScriptedAnswer::failing(ErrorKind::AuthFailed),
        _ => ScriptedAnswer::saying("done"),
    });
    let lead = lead.name("lead").tool(OperatorTool::new("payer", "Pays.")).build().unwrap();
    let orchestrator = builder(&clock).operator(payer(&clock, &log, &paid, 0)).build().unwrap();
    let through: Arc<dyn Orchestrator> = Arc::new(orchestrator);
    let request = RunRequest::new("see to it").orchestrator(Arc::clone(&through));
    let running = lead.clone();
    let failure = on(&clock, async move { running.run(request).await }).await.unwrap_err();
    assert_eq!(failure.code(), "provider.auth_failed");
    assert_eq!(paid.load(Ordering::SeqCst), 1);
    let request = ReopenRequest::new(failure.run_id.clone()).orchestrator(Arc::clone(&through));
    let reopened = lead.clone();
    let outcome = on(&clock, async move { reopened.reopen(request).await }).await.unwrap();
    assert_eq!((outcome.text(), paid.load(Ordering::SeqCst)), ("done", 2));
    let request = ResumeRequest::new(failure.run_id).orchestrator(through);
    let again = on(&clock, async move { lead.resume(request).await }).await.unwrap();
    assert_eq!(again.text(), "done");
}
