//! Requests of a task to its run: a part of the budget, the history of the session.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use backstop_clock::VirtualClock;
use backstop_event_log::{MemoryLog, RunFilter, Runs, read_events};
use backstop_provider::{ModelRequest, ScriptedAnswer, ScriptedToolCall};
use backstop_react::{Agent, Budget, OperatorTool, replay};
use backstop_tool::{ToolContext, ToolError, tool};
use layer0::Orchestrator;
use layer0::event::EventKind;
use layer0::failure::Failure;
use layer0::message::Message;
use layer0::operator::{Context, Task};
use layer0::stop::Stop;
use layer0::usage::Allowance;
use serde_json::{Value, json};

use crate::agents::agent;
use crate::{builder, on, operator, start};

/// Returns a model that calls a tool, then answers with the tool's output.
fn calling(name: &'static str, arguments: Value) -> impl Fn(&ModelRequest) -> ScriptedAnswer {
    move |request| match request.messages.messages().last().map(|message| &**message) {
        Some(Message::Tool { content, .. }) => ScriptedAnswer::saying(format!("[{content}]")),
        _ => {
            let call = ScriptedToolCall::new("c1", name, arguments.clone());
            ScriptedAnswer::default().tool_calls([call])
        }
    }
}

/// The task that the tool gives to the operator.
struct Wanted(Task);

/// Asks the other operator.
#[tool]
async fn ask(context: &ToolContext) -> Result<Value, ToolError> {
    let Wanted(task) = context.state().unwrap();
    let answer = context.dispatch("other", task.clone()).await;
    Ok(answer.map_err(|error| ToolError::ExecutionFailed(format!("{error:?}")))?.output)
}

fn model_calls(count: u32) -> Allowance {
    let mut allowance = Allowance::without_bounds();
    allowance.model_calls = Some(count);
    allowance
}

/// Looks for ever.
#[tool(idempotent)]
async fn look(at: u32) -> Result<u32, ToolError> {
    Ok(at)
}

/// Looks again at each answer.
fn looker(clock: &VirtualClock, log: &Arc<MemoryLog>) -> Agent {
    let seen = AtomicU32::new(0);
    let answer = move |_: &ModelRequest| {
        let at = seen.fetch_add(1, Ordering::SeqCst);
        ScriptedAnswer::calling("look", json!({ "at": at }))
    };
    agent(clock, log, answer).name("other").tool(look).build().unwrap()
}

/// Spec: B1, O2. With nothing to give nothing starts; with a bound there is nothing beyond it.
#[tokio::test]
async fn task_bounds_what_a_run_below_uses() {
    for (bound, runs, attempts) in [(0, 1, 0), (2, 2, 2)] {
        let (clock, log) = (start(), Arc::<MemoryLog>::default());
        let lead = agent(&clock, &log, calling("ask", json!({})));
        let task = Task::text("look").allowance(model_calls(bound));
        let lead = lead.name("lead").tool(ask).state(Wanted(task)).build().unwrap();
        let orchestrator =
            builder(&clock).operator(looker(&clock, &log)).operator(lead).build().unwrap();
        let work =
            async move { orchestrator.dispatch("lead", Task::text("x"), Context::root()).await };
        let answer = on(&clock, work).await.unwrap();
        let known = log.runs(RunFilter::default()).await.unwrap();
        assert_eq!(known.len(), runs, "at most {bound}: {}", answer.output);
        let below = known.iter().find(|run| &*run.agent == "other");
        assert_eq!(below.map_or(0, |run| run.usage.model_attempts), attempts);
        for run in &known {
            replay(&*log, &run.run).await.unwrap();
        }
    }
}

/// Spec: B1. A task bounds a root too, which has no caller to give it more.
#[tokio::test]
async fn task_bounds_a_root() {
    let (clock, log) = (start(), Arc::<MemoryLog>::default());
    let orchestrator = builder(&clock).operator(looker(&clock, &log)).build().unwrap();
    let task = Task::text("look").allowance(model_calls(2));
    let work = async move { orchestrator.dispatch("other", task, Context::root()).await };
    let answer = on(&clock, work).await.unwrap();
    assert_eq!(answer.stop, Stop::BudgetExhausted { reason: "budget.model_calls".into() });
    assert_eq!(answer.usage.model_attempts, 2);
    let (_, events) = read_events(&*log, &answer.run.unwrap()).await.unwrap();
    assert!(!events.iter().any(|event| matches!(event.kind, EventKind::RunWaiting(_))));
}

/// Spec: O2. A run below reads what was said in the session if its dispatch asks for it.
#[tokio::test]
async fn run_below_reads_the_session_if_asked() {
    for task in [Task::text("sum up"), Task::text("sum up").with_history()] {
        let (clock, log) = (start(), Arc::<MemoryLog>::default());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let read = Arc::clone(&seen);
        let other = agent(&clock, &log, move |request| {
            let said = request.messages.messages().iter().filter_map(|message| match &**message {
                Message::User { content, .. } | Message::Assistant { content, .. } => {
                    Some(content.to_string())
                }
                _ => None,
            });
            read.lock().unwrap().extend(said);
            ScriptedAnswer::saying("summed up")
        });
        let wants = task.history;
        let lead = agent(&clock, &log, |request| {
            match request.messages.messages().last().map(|message| &**message) {
                Some(Message::User { content, .. }) if &**content == "hello" => {
                    ScriptedAnswer::saying("good day")
                }
                Some(Message::User { .. }) => ScriptedAnswer::calling("ask", json!({})),
                _ => ScriptedAnswer::saying("done"),
            }
        });
        let lead = lead.name("lead").tool(ask).state(Wanted(task)).build().unwrap();
        let other = other.name("other").build().unwrap();
        let orchestrator = builder(&clock).operator(other).operator(lead).build().unwrap();
        for input in ["hello", "sum it up"] {
            let mut context = Context::root();
            context.session = Some("s".into());
            let orchestrator = orchestrator.clone();
            let work =
                async move { orchestrator.dispatch("lead", Task::text(input), context).await };
            assert_eq!(on(&clock, work).await.unwrap().stop, Stop::Completed);
        }
        let expected: &[&str] = match wants {
            true => &["hello", "good day", "sum it up", "sum up"],
            false => &["sum up"],
        };
        assert_eq!(*seen.lock().unwrap(), expected);
        // It is no part of the session itself.
        let last = log.last_root(&"s".into()).await.unwrap().unwrap();
        assert_eq!(&*last.agent, "lead");
        for run in log.runs(RunFilter::default()).await.unwrap() {
            replay(&*log, &run.run).await.unwrap();
        }
    }
}

/// Spec: O3, T1. Whether an operator keeps a record stands in its dispatch.
#[tokio::test]
async fn operator_without_a_record_is_recorded_as_such() {
    for unrecorded in [true, false] {
        let (clock, log) = (start(), Arc::<MemoryLog>::default());
        let lead = agent(&clock, &log, calling("other", json!({ "input": "do it" })));
        let lead = lead.name("lead").tool(OperatorTool::new("other", "Does it.")).build().unwrap();
        let builder = builder(&clock).operator(lead);
        let orchestrator = match unrecorded {
            false => builder.operator(looker(&clock, &log)),
            true => builder.operator(operator("other", |_| Ok(json!("done"))).0),
        };
        let orchestrator = orchestrator.build().unwrap();
        let work =
            async move { orchestrator.dispatch("lead", Task::text("x"), Context::root()).await };
        let answer = on(&clock, work).await.unwrap();
        let (_, events) = read_events(&*log, &answer.run.unwrap()).await.unwrap();
        let said: Vec<bool> = events
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::OperatorDispatched(dispatched) => Some(dispatched.unrecorded),
                _ => None,
            })
            .collect();
        assert_eq!(said, [unrecorded]);
    }
}

/// Spec: B1. A bound on the cost of what has no price is refused.
#[tokio::test]
async fn cost_without_a_price_is_not_bounded() {
    let (clock, log) = (start(), Arc::<MemoryLog>::default());
    let orchestrator = builder(&clock).operator(looker(&clock, &log)).build().unwrap();
    let mut allowance = Allowance::without_bounds();
    allowance.cost_nanousd = Some(1_000);
    let task = Task::text("look").allowance(allowance);
    let work = async move { orchestrator.dispatch("other", task, Context::root()).await };
    assert_eq!(on(&clock, work).await.unwrap_err().code(), "orch.price_unknown");
    assert!(log.runs(RunFilter::default()).await.unwrap().is_empty());
}

/// Spec: O4. A run that has no record is not begun to be gone on with.
#[tokio::test]
async fn unknown_run_is_not_resumed() {
    let (clock, log) = (start(), Arc::<MemoryLog>::default());
    let orchestrator = builder(&clock).operator(looker(&clock, &log)).build().unwrap();
    let work = async move { orchestrator.resume("other", "run_none".into()).await };
    assert_eq!(on(&clock, work).await.unwrap_err().code(), "run.not_found");
    assert!(log.runs(RunFilter::default()).await.unwrap().is_empty());
}

/// Asks four others at once.
#[tool]
async fn ask_all(context: &ToolContext) -> Result<Value, ToolError> {
    let tasks = vec![("other".to_owned(), Task::text("look")); 4];
    let operators = context.operators.as_ref().unwrap();
    let answers = operators.dispatch_many(tasks, Context::root()).await;
    Ok(answers.len().into())
}

/// Spec: O2. What a tool dispatches at once shares what is left evenly.
#[tokio::test]
async fn tool_divides_what_is_left_evenly() {
    let (clock, log) = (start(), Arc::<MemoryLog>::default());
    let lead = agent(&clock, &log, calling("ask_all", json!({})));
    let lead = lead.name("lead").tool(ask_all).budget(Budget::new().model_calls(18));
    let other = agent(&clock, &log, |_| ScriptedAnswer::saying("done")).name("other");
    let orchestrator = builder(&clock).operator(lead.build().unwrap());
    let orchestrator = orchestrator.operator(other.build().unwrap()).build().unwrap();
    let work = async move { orchestrator.dispatch("lead", Task::text("x"), Context::root()).await };
    let answer = on(&clock, work).await.unwrap();
    let (_, events) = read_events(&*log, &answer.run.unwrap()).await.unwrap();
    let given = events.iter().filter_map(|event| match &event.kind {
        EventKind::OperatorDispatched(dispatched) => dispatched.allowance.model_calls,
        _ => None,
    });
    // One of 18 asked for them, one is kept.
    assert_eq!(given.collect::<Vec<_>>(), [4, 4, 4, 4]);
}
