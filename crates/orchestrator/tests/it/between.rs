//! An operator without a record between two agents: it hides neither budget nor usage nor waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::{Decision, Inbox, MemoryLog, RunFilter, Runs, read_events};
use backstop_orchestrator::LocalOrchestrator;
use backstop_provider::{ModelRequest, ScriptedAnswer};
use backstop_react::{Budget, Limits, OperatorTool, Price, replay};
use layer0::event::EventKind;
use layer0::operator::{Answer, Context, Task};
use layer0::stop::Stop;
use layer0::{Orchestrator, Timestamp};
use serde_json::json;

use crate::agents::{agent, calling, has_answers, pay};
use crate::{Caller, builder, on, start};

/// Makes an orchestrator in which `lead` calls `middle`, which calls `worker`.
fn tree(
    clock: &VirtualClock,
    log: &Arc<MemoryLog>,
    paid: &Arc<AtomicU32>,
    middle: OperatorTool,
    needs_approval: bool,
) -> LocalOrchestrator {
    let lead = agent(clock, log, |request| match has_answers(request) {
        true => ScriptedAnswer::saying("done"),
        false => ScriptedAnswer::calling("middle", json!({ "input": "go" })),
    });
    let budget = Budget::new().model_calls(8).wall(Duration::from_secs(60));
    let lead = lead.name("lead").budget(budget).tool(middle).build().unwrap();
    let worker = agent(clock, log, move |request: &ModelRequest| {
        match needs_approval && has_answers(request) {
            true => ScriptedAnswer::saying("it is paid"),
            // Without an approval it never ends by itself.
            false => calling("pay"),
        }
    });
    let mut worker = worker
        .name("worker")
        .tool(pay)
        .state(Arc::clone(paid))
        .limits(Limits::new().max_repeated_batch_steps(None).max_observation_steps(None));
    if needs_approval {
        worker = worker.require_approval("pay");
    }
    builder(clock)
        .operator(lead)
        .operator(Caller { name: "middle", calls: "worker" })
        .operator(worker.build().unwrap())
        .build()
        .unwrap()
}

async fn dispatch(clock: &VirtualClock, orchestrator: LocalOrchestrator) -> Answer {
    on(clock, async move {
        orchestrator.dispatch("lead", Task::text("x"), Context::root()).await.unwrap()
    })
    .await
}

/// Spec: B1, O2. What it dispatches is bounded by its allowance, and its usage reaches the caller.
#[tokio::test]
async fn what_it_dispatches_counts_for_its_caller() {
    let (clock, log, paid) = (start(), Arc::<MemoryLog>::default(), Arc::<AtomicU32>::default());
    let middle = OperatorTool::new("middle", "Hands on.");
    let orchestrator = tree(&clock, &log, &paid, middle, false);
    let answer = dispatch(&clock, orchestrator).await;
    assert_eq!((&answer.output, &answer.stop), (&json!("done"), &Stop::Completed));
    assert_eq!(answer.usage.model_attempts, 8, "all of it was used, and no more");
    let runs = log.runs(RunFilter::default()).await.unwrap();
    let worker = runs.iter().find(|run| &*run.agent == "worker").unwrap();
    assert_eq!(worker.usage.model_attempts, 6);
    assert_eq!(worker.reason, Some("budget.model_calls".into()));
    let (_, events) = read_events(&*log, answer.run.as_ref().unwrap()).await.unwrap();
    let returned = events.iter().find_map(|event| match &event.kind {
        EventKind::OperatorReturned(returned) => Some(returned.usage),
        _ => None,
    });
    assert_eq!(returned.unwrap().model_attempts, 6);
    for run in runs {
        replay(&*log, &run.run).await.unwrap();
    }
}

/// Spec: O2. Waiting rises through it; begun anew, it goes on with what it dispatched.
#[tokio::test]
async fn waiting_rises_through_it() {
    let (clock, log, paid) = (start(), Arc::<MemoryLog>::default(), Arc::<AtomicU32>::default());
    let middle = OperatorTool::new("middle", "Hands on.").idempotent();
    let orchestrator = tree(&clock, &log, &paid, middle, true);
    let left = dispatch(&clock, orchestrator.clone()).await;
    assert_eq!(left.stop, Stop::WaitingApproval);
    assert_eq!(clock.now(), Timestamp::default());
    let open = log.open_approvals().await.unwrap();
    let run = left.run.unwrap();
    let (_, events) = read_events(&*log, &run).await.unwrap();
    match &events.last().unwrap().kind {
        EventKind::RunWaiting(waiting) => assert_eq!(waiting.approvals, [open[0].id.clone()]),
        other => panic!("{}", other.event_type()),
    }
    assert!(log.decide(&open[0].id, Decision::approve("ops"), clock.now()).await.unwrap());
    let answer = on(&clock, async move { orchestrator.resume("lead", run).await }).await.unwrap();
    assert_eq!((answer.output, answer.stop), (json!("done"), Stop::Completed));
    assert_eq!(paid.load(Ordering::SeqCst), 1);
    let runs = log.runs(RunFilter::default()).await.unwrap();
    assert_eq!(runs.len(), 2, "what it dispatched was gone on with");
    assert_eq!(answer.usage.model_attempts, 4);
}

/// Spec: O2, T1. What must not be begun anew stays where it is, and no time passes for it.
#[tokio::test]
async fn what_cannot_be_begun_anew_stays() {
    let (clock, log, paid) = (start(), Arc::<MemoryLog>::default(), Arc::<AtomicU32>::default());
    let middle = OperatorTool::new("middle", "Hands on.").timeout(Duration::from_secs(20));
    let orchestrator = tree(&clock, &log, &paid, middle, true);
    let (waits, of) = (clock.clone(), Arc::clone(&log));
    let answer = on(&clock, async move {
        let approve = async {
            waits.sleep(Duration::from_secs(3_600)).await;
            let open = of.open_approvals().await.unwrap();
            let decision = Decision::approve("ops");
            assert!(of.decide(&open[0].id, decision, waits.now()).await.unwrap());
        };
        let dispatch = orchestrator.dispatch("lead", Task::text("x"), Context::root());
        tokio::join!(dispatch, approve).0.unwrap()
    })
    .await;
    assert_eq!((answer.output, answer.stop), (json!("done"), Stop::Completed));
    assert_eq!(paid.load(Ordering::SeqCst), 1);
}

/// Spec: B1. What an operator without a record dispatched is paid for by its caller.
#[tokio::test]
async fn cost_of_what_it_dispatches_is_known() {
    let (clock, log) = (start(), Arc::<MemoryLog>::default());
    let price = Price::new(1.0, 2.0);
    let lead = agent(&clock, &log, |request| match has_answers(request) {
        true => ScriptedAnswer::saying("done"),
        false => ScriptedAnswer::calling("middle", json!({ "input": "go" })),
    });
    let lead = lead.name("lead").price(price).budget(Budget::new().cost_usd(1.0));
    let lead = lead.tool(OperatorTool::new("middle", "Hands on.")).build().unwrap();
    let worker = agent(&clock, &log, |_| ScriptedAnswer::saying("it is done"));
    let worker = worker.name("worker").price(price).build().unwrap();
    let orchestrator = builder(&clock)
        .operator(lead)
        .operator(Caller { name: "middle", calls: "worker" })
        .operator(worker)
        .build()
        .unwrap();
    let answer = dispatch(&clock, orchestrator).await;
    assert_eq!((&answer.stop, answer.usage.model_attempts), (&Stop::Completed, 3));
    assert!(answer.usage.cost_usd.is_some(), "{:?}", answer.usage);
}
