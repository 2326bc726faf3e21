//! Messages to a run, and their effects.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::{Log, MemoryLog, RunFilter, RunState, Runs, read_events};
use backstop_provider::{ModelRequest, ScriptedAnswer, ScriptedToolCall};
use backstop_react::{
    Agent, Gate, GateVerdict, HookContext, HookPoint, Moment, OperatorTool, replay,
};
use layer0::Orchestrator;
use layer0::error::BoxError;
use layer0::event::EventKind;
use layer0::failure::Failure;
use layer0::id::WorkflowId;
use layer0::operator::{Context, Signal, Task};
use layer0::stop::{Outcome, Stop};
use serde_json::json;

use crate::agents::{agent, calling, has_answers, pay};
use crate::process::{own, record};
use crate::workflows::workflow;
use crate::{builder, on, start};

/// Writes down the signals that it is shown, and stops the run at `stop`.
struct Ear(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl Gate for Ear {
    fn name(&self) -> &str {
        "ear"
    }

    fn points(&self) -> &[HookPoint] {
        &[HookPoint::Signal]
    }

    async fn judge(&self, moment: Moment<'_>, _: &HookContext) -> Result<GateVerdict, BoxError> {
        let Moment::Signal { name, data, .. } = moment else { return Err("no signal".into()) };
        self.0.lock().unwrap().push(format!("{name} {data}"));
        match name {
            "stop" => Ok(GateVerdict::Abort("it was asked to".into())),
            "odd" => Err("what is that?".into()),
            _ => Ok(GateVerdict::Continue),
        }
    }
}

/// Spec: O2. A signal that is neither `cancel` nor `input` reaches hooks, which may stop the run.
#[tokio::test]
async fn signals_of_other_names_reach_hooks() {
    let (clock, log, heard) = (start(), Arc::<MemoryLog>::default(), Arc::default());
    let ear = Ear(Arc::clone(&heard));
    let answer = |_: &ModelRequest| ScriptedAnswer::saying("late").delay_ms(3_600_000);
    let waiting = agent(&clock, &log, answer).name("waiting").gate(ear).build().unwrap();
    let orchestrator = builder(&clock).operator(waiting).build().unwrap();
    let context = Context::root();
    for signal in [
        Signal::new("look", json!({ "at": 1 })),
        Signal::new("input", json!("hurry")),
        Signal::new("odd", json!(null)),
        Signal::new("stop", json!("now")),
    ] {
        context.signals.push(signal);
    }
    let failed = on(&clock, async move {
        orchestrator.dispatch("waiting", Task::text("x"), context).await.unwrap_err()
    });
    assert_eq!(failed.await.code(), "hook.aborted");
    assert_eq!(*heard.lock().unwrap(), ["look {\"at\":1}", "odd null", "stop \"now\""]);
    let run = log.runs(RunFilter::new()).await.unwrap().pop().unwrap().run;
    let (_, events) = read_events(&*log, &run).await.unwrap();
    let types: Vec<&str> = events.iter().map(|event| event.kind.event_type()).collect();
    assert_eq!(types.iter().filter(|it| **it == "hook.failed").count(), 1);
    assert_eq!(types.last(), Some(&"run.failed"));
    replay(&*log, &run).await.unwrap();
}

/// An agent that pays and waits an hour for the next word of its model.
fn slow_payer(clock: &VirtualClock, log: &Arc<MemoryLog>, paid: &Arc<AtomicU32>) -> Agent {
    let answer = |request: &ModelRequest| match has_answers(request) {
        true => ScriptedAnswer::saying("late").delay_ms(3_600_000),
        false => calling("pay"),
    };
    let payer = agent(clock, log, answer).name("payer").state(Arc::clone(paid));
    payer.tool(pay).build().unwrap()
}

/// Spec: A1, O4. The sender ends a run that no process runs: nothing of it is run again.
#[tokio::test]
async fn cancel_ends_a_run_without_a_process() {
    let (clock, log, paid) = (start(), Arc::<MemoryLog>::default(), Arc::<AtomicU32>::default());
    let died = slow_payer(&clock, &log, &paid);
    let waits = clock.clone();
    on(&clock, async move {
        tokio::select! {
            _ = died.run("pay it") => unreachable!("it waits an hour"),
            () = waits.sleep(Duration::from_secs(1)) => {}
        }
    })
    .await;
    let left = log.runs(RunFilter::new()).await.unwrap().pop().unwrap();
    assert!(left.is_open(), "its process died");
    let payer = slow_payer(&clock, &log, &paid);
    let orchestrator =
        builder(&clock).operator(payer).shared_log(Arc::clone(&log) as _).build().unwrap();
    let id = WorkflowId::new(left.run.as_str());
    on(&clock, async move { orchestrator.signal(&id, Signal::cancel()).await }).await.unwrap();
    let ended = log.summary(&left.run).await.unwrap().unwrap();
    assert_eq!((ended.state, ended.outcome), (RunState::Finished, Some(Outcome::Cancelled)));
    assert_eq!(paid.load(Ordering::SeqCst), 1);
    let (_, events) = read_events(&*log, &left.run).await.unwrap();
    let attempts = events.iter().filter(|it| it.kind.event_type() == "model.attempted").count();
    assert_eq!(attempts, 1, "its model is not asked again");
    replay(&*log, &left.run).await.unwrap();
}

/// Spec: O2. What cancels a run below stops the run at the head of its callers.
#[tokio::test]
async fn cancel_of_a_run_below_stops_its_root() {
    let (clock, log, paid) = (start(), Arc::<MemoryLog>::default(), Arc::<AtomicU32>::default());
    let payer = slow_payer(&clock, &log, &paid);
    let lead = agent(&clock, &log, |_| {
        let call = ScriptedToolCall::new("c1", "payer", json!({ "input": "pay it" }));
        ScriptedAnswer::default().tool_calls([call])
    });
    let lead = lead.name("lead").tool(OperatorTool::new("payer", "Pays.")).build().unwrap();
    let orchestrator = builder(&clock).operator(payer).operator(lead);
    let orchestrator = orchestrator.shared_log(Arc::clone(&log) as _).build().unwrap();
    let (outside, waits, of) = (orchestrator.clone(), clock.clone(), Arc::clone(&log));
    let answer = on(&clock, async move {
        let cancel = async {
            waits.sleep(Duration::from_secs(1)).await;
            let runs = of.runs(RunFilter::new()).await.unwrap();
            let below = runs.iter().find(|run| run.parent.is_some()).unwrap();
            outside.signal(&WorkflowId::new(below.run.as_str()), Signal::cancel()).await.unwrap();
        };
        let dispatch = orchestrator.dispatch("lead", Task::text("x"), Context::root());
        tokio::join!(dispatch, cancel).0.unwrap()
    })
    .await;
    assert_eq!(answer.stop, Stop::Cancelled);
    assert!(log.runs(RunFilter::new()).await.unwrap().iter().all(|run| !run.is_open()));
}

/// Spec: B1. A workflow records as many signals as an agent's run may have events; a cancellation is always recorded.
#[tokio::test]
async fn signals_to_a_workflow_are_bounded() {
    const MOST: usize = 10_000;
    for (count, end) in [(MOST, "run.cancelled"), (MOST + 1, "budget.events")] {
        let (clock, log) = (start(), Arc::new(MemoryLog::new()));
        let code = own("own", |_, _| std::future::pending());
        let orchestrator = builder(&clock).operator(workflow(code, &clock, &log)).build().unwrap();
        let context = Context::root();
        (0..count).for_each(|at| context.signals.push(Signal::new("tick", json!(at))));
        if count == MOST {
            context.signals.push(Signal::cancel());
        }
        let dispatch =
            async move { orchestrator.dispatch("own", Task::text("x"), context).await.unwrap() };
        let answer = on(&clock, dispatch).await;
        assert_eq!(answer.stop.reason(), Some(end.into()));
        let events = record(&log, "own").await;
        let ticks = events.iter().filter(|event| match &event.kind {
            EventKind::SignalReceived(signal) => &*signal.name == "tick",
            _ => false,
        });
        assert_eq!(ticks.count(), MOST);
        let exhausted = events.iter().find_map(|event| match &event.kind {
            EventKind::BudgetExhausted(exhausted) => Some(&*exhausted.dimension),
            _ => None,
        });
        assert_eq!(exhausted, (count > MOST).then_some("events"));
    }
}
