//! Waits: for a permit, for a person, between two attempts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::{Decision, Inbox, MemoryLog, RunFilter, Runs};
use backstop_provider::{ModelRequest, ScriptedAnswer};
use backstop_react::{AgentBuilder, ApprovalRequest, Approver, Budget, OperatorTool};
use backstop_tool::{ToolContext, ToolError, tool};
use layer0::error::{OperatorError, OrchError};
use layer0::failure::Failure;
use layer0::id::WorkflowId;
use layer0::operator::{Caller, Context, Signal, Task, Waiting};
use layer0::stop::Stop;
use layer0::usage::{Allowance, Usage};
use layer0::{Orchestrator, Timestamp};
use serde_json::{Value, json};

use crate::agents::{agent, calling, has_answers, kinds, pay, payer};
use crate::{Sleeps, builder, on, operator, start};

/// Approves after an hour.
pub(crate) struct Slow(pub(crate) VirtualClock);

#[async_trait]
impl Approver for Slow {
    async fn decide(&self, _: &ApprovalRequest) -> Option<Decision> {
        self.0.sleep(Duration::from_secs(3_600)).await;
        Some(Decision::approve("ops"))
    }
}

fn hour_later(clock: &VirtualClock) -> bool {
    clock.now().since(Timestamp::default()) >= Duration::from_secs(3_600)
}

/// Pays once a person agreed.
pub(crate) fn asking(
    clock: &VirtualClock,
    log: &Arc<MemoryLog>,
    paid: &Arc<AtomicU32>,
) -> AgentBuilder {
    let answer = |request: &ModelRequest| match has_answers(request) {
        true => ScriptedAnswer::saying("it is paid"),
        false => calling("pay"),
    };
    agent(clock, log, answer)
        .name("payer")
        .tool(pay)
        .require_approval("pay")
        .state(Arc::clone(paid))
}

/// Calls the payer by this tool.
fn lead(clock: &VirtualClock, log: &Arc<MemoryLog>, tool: &'static str) -> AgentBuilder {
    let input =
        if tool == "delegate" || tool == "look" { json!({}) } else { json!({ "input": "pay" }) };
    agent(clock, log, move |request| match has_answers(request) {
        true => ScriptedAnswer::saying("done"),
        false => ScriptedAnswer::calling(tool, input.clone()),
    })
    .name("lead")
    .budget(Budget::new().wall(Duration::from_secs(60)))
}

/// Spec: O2. Waiting for a person counts for no timeout, of the run or of what is above it.
#[tokio::test]
async fn an_approver_takes_no_time_of_the_tree() {
    let (clock, log, paid) = (start(), Arc::<MemoryLog>::default(), Arc::<AtomicU32>::default());
    let payer = asking(&clock, &log, &paid).approver(Slow(clock.clone())).build().unwrap();
    let lead = lead(&clock, &log, "payer").tool(OperatorTool::new("payer", "Pays."));
    let orchestrator =
        builder(&clock).operator(payer).operator(lead.build().unwrap()).build().unwrap();
    let mut context = Context::root();
    context.deadline = Some(clock.now().after(Duration::from_secs(10)));
    let answer =
        on(&clock, async move { orchestrator.dispatch("lead", Task::text("x"), context).await });
    let answer = answer.await.unwrap();
    assert_eq!((answer.output, answer.stop), (json!("done"), Stop::Completed));
    assert!(hour_later(&clock));
    let kinds = kinds(&log, &answer.run.unwrap()).await;
    assert!(kinds.contains(&"operator.waiting") && kinds.contains(&"run.waiting"), "{kinds:?}");
}

/// Spec: O2, O4. A deadline covers the wait for a permit: what did not start is refused.
#[tokio::test]
async fn a_deadline_covers_the_wait_for_a_permit() {
    let clock = start();
    let (quick, runs) = operator("quick", |_| Ok(Value::Null));
    let orchestrator = builder(&clock)
        .operator(Sleeps(clock.clone()))
        .operator(quick)
        .max_concurrent(1)
        .build()
        .unwrap();
    let busy = orchestrator.clone();
    let errors = on(&clock, async move {
        let late = async {
            let mut context = Context::root();
            context.deadline = Some(Timestamp::default().after(Duration::from_secs(5)));
            orchestrator.dispatch("quick", Task::text("x"), context).await.unwrap_err()
        };
        let (busy, late) = tokio::join!(
            async { busy.dispatch("sleeps", Task::text("x"), Context::root()).await },
            late
        );
        busy.unwrap();
        late
    });
    assert_eq!(errors.await.code(), "orch.deadline");
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

/// Spec: O2, O5. A wait between attempts ends with the cancellation, and nothing is reopened for it.
#[tokio::test]
async fn cancel_ends_the_wait_between_attempts() {
    let (clock, log, paid) = (start(), Arc::<MemoryLog>::default(), Arc::<AtomicU32>::default());
    let orchestrator = builder(&clock).operator(payer(&clock, &log, &paid, 99)).build().unwrap();
    let (running, waits, of) = (orchestrator.clone(), clock.clone(), Arc::clone(&log));
    let error = on(&clock, async move {
        let cancel = async {
            waits.sleep(Duration::from_secs(20)).await;
            let run = of.runs(RunFilter::default()).await.unwrap().remove(0);
            assert!(!run.is_open(), "it has failed once");
            let id = WorkflowId::new(run.run.as_str());
            running.signal(&id, Signal::cancel()).await.unwrap();
        };
        let dispatch = orchestrator.dispatch("payer", Task::text("pay it"), Context::root());
        tokio::join!(dispatch, cancel).0.unwrap_err()
    });
    assert!(!error.await.is_retryable());
    assert_eq!(clock.now().since(Timestamp::default()), Duration::from_secs(20));
    assert_eq!(log.runs(RunFilter::default()).await.unwrap().remove(0).reopens, 0);
}

/// Spec: O5, R4. No attempt begins past the deadline, and nothing is waited for it.
#[tokio::test]
async fn no_attempt_begins_past_the_deadline() {
    let (clock, log, paid) = (start(), Arc::<MemoryLog>::default(), Arc::<AtomicU32>::default());
    let orchestrator = builder(&clock).operator(payer(&clock, &log, &paid, 99)).build().unwrap();
    let mut context = Context::root();
    context.deadline = Some(clock.now().after(Duration::from_secs(25)));
    let result =
        on(&clock, async move { orchestrator.dispatch("payer", Task::text("x"), context).await });
    assert!(result.await.is_err());
    assert!(clock.now().since(Timestamp::default()) < Duration::from_secs(20));
    assert_eq!(log.runs(RunFilter::default()).await.unwrap().remove(0).reopens, 0);
}

/// Cannot write down another attempt.
struct Deaf;

#[async_trait]
impl Caller for Deaf {
    fn report_usage(&self, _: Usage) {}
    async fn wait(&self, _: Waiting) {
        std::future::pending::<()>().await;
    }
    async fn more(&self, _: u32) -> Option<Allowance> {
        None
    }
    async fn retry(&self, _: u32) -> Result<(), OrchError> {
        Err(OrchError::DispatchFailed("no record".into()))
    }
}

/// Spec: O3. An attempt that is not recorded is not made.
#[tokio::test]
async fn no_attempt_without_its_record() {
    let clock = start();
    let (flaky, runs) = operator("flaky", |_| Err(OperatorError::Retryable("busy".into())));
    let orchestrator = builder(&clock).operator(flaky).build().unwrap();
    let mut context = Context::root();
    context.caller = Some(Arc::new(Deaf));
    let result =
        on(&clock, async move { orchestrator.dispatch("flaky", Task::text("x"), context).await });
    assert_eq!(result.await.unwrap_err().code(), "orch.dispatch_failed");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// Has it paid, and may do so again.
#[tool(idempotent)]
async fn look(context: &ToolContext) -> Result<Value, ToolError> {
    let answer = context.dispatch("payer", Task::text("pay it")).await;
    Ok(answer.map_err(|error| ToolError::ExecutionFailed(error.to_string()))?.output)
}

/// Approves what is open, an hour later.
async fn approve(clock: &VirtualClock, log: &MemoryLog) {
    clock.sleep(Duration::from_secs(3_600)).await;
    let open = log.open_approvals().await.unwrap();
    assert_eq!(open.len(), 1);
    assert!(log.decide(&open[0].id, Decision::approve("ops"), clock.now()).await.unwrap());
}

/// Spec: O2. A tool that dispatches on its way waits with what it dispatched: its time does not pass, and
/// as it cannot be made again, it stays.
#[tokio::test]
async fn a_tool_waits_with_what_it_dispatched() {
    let (clock, log, paid) = (start(), Arc::<MemoryLog>::default(), Arc::<AtomicU32>::default());
    let lead = lead(&clock, &log, "delegate").tool(crate::agents::delegate).build().unwrap();
    let payer = asking(&clock, &log, &paid).build().unwrap();
    let orchestrator = builder(&clock).operator(payer).operator(lead).build().unwrap();
    let (waits, of) = (clock.clone(), Arc::clone(&log));
    let answer = on(&clock, async move {
        let dispatch = orchestrator.dispatch("lead", Task::text("x"), Context::root());
        tokio::join!(dispatch, approve(&waits, &of)).0.unwrap()
    });
    let answer = answer.await;
    assert_eq!((answer.output, answer.stop), (json!("done"), Stop::Completed));
    assert_eq!(paid.load(Ordering::SeqCst), 1);
    let kinds = kinds(&log, &answer.run.unwrap()).await;
    assert!(kinds.contains(&"run.waiting"), "{kinds:?}");
}

/// Spec: O2. A tool that may be run again leaves with what it dispatched, and is taken up with it.
#[tokio::test]
async fn a_repeatable_tool_leaves_and_is_taken_up() {
    let (clock, log, paid) = (start(), Arc::<MemoryLog>::default(), Arc::<AtomicU32>::default());
    let lead = lead(&clock, &log, "look").tool(look).build().unwrap();
    let payer = asking(&clock, &log, &paid).build().unwrap();
    let orchestrator = builder(&clock).operator(payer).operator(lead).build().unwrap();
    let (waits, of) = (clock.clone(), Arc::clone(&log));
    let (left, answer) = on(&clock, async move {
        let left = orchestrator.dispatch("lead", Task::text("x"), Context::root()).await.unwrap();
        approve(&waits, &of).await;
        let run = left.run.clone().unwrap();
        (left, orchestrator.resume("lead", run).await.unwrap())
    })
    .await;
    assert_eq!(left.stop, Stop::WaitingApproval);
    assert_eq!((answer.output, answer.stop), (json!("done"), Stop::Completed));
    assert_eq!(paid.load(Ordering::SeqCst), 1);
    assert_eq!(log.runs(RunFilter::default()).await.unwrap().len(), 2);
}

/// Spec: O2, O5. An agent that is a tool goes the same way: it is tried again where it failed, in an
/// orchestrator or not.
#[tokio::test]
async fn an_agent_tool_goes_on_where_it_failed() {
    for is_orchestrated in [true, false] {
        let (clock, log, paid) =
            (start(), Arc::<MemoryLog>::default(), Arc::<AtomicU32>::default());
        let payer = payer(&clock, &log, &paid, 3);
        let lead = lead(&clock, &log, "payer").tool(payer.as_tool("Pays.")).build().unwrap();
        let orchestrator = builder(&clock).operator(lead.clone()).build().unwrap();
        let outcome = on(&clock, async move {
            match is_orchestrated {
                true => {
                    let task = Task::text("x");
                    let answer = orchestrator.dispatch("lead", task, Context::root()).await;
                    answer.unwrap().output
                }
                false => json!(lead.run("x").await.unwrap().text()),
            }
        });
        assert_eq!(outcome.await, "done");
        assert_eq!(paid.load(Ordering::SeqCst), 1);
        let runs = log.runs(RunFilter::default()).await.unwrap();
        let reopens: Vec<_> = runs.iter().map(|run| (&*run.agent, run.reopens)).collect();
        assert!(reopens.contains(&("payer", 1)), "{reopens:?}");
    }
}

/// Spec: O2. Dropping the run of a caller ends what its tools started, which closes its record.
#[tokio::test]
async fn an_agent_tool_ends_with_its_caller() {
    let (clock, log) = (start(), Arc::<MemoryLog>::default());
    let held = clock.hold();
    let slow = crate::agents::slow(&clock, &log);
    let lead = lead(&clock, &log, "slow").tool(slow.as_tool("Is slow.")).build().unwrap();
    let task = tokio::spawn(async move { lead.run("x").await });
    let runs = async || log.runs(RunFilter::default()).await.unwrap();
    while !runs().await.iter().any(|run| &*run.agent == "slow" && run.usage.model_calls == 1) {
        tokio::task::yield_now().await;
    }
    task.abort();
    let slow = loop {
        let run = runs().await.into_iter().find(|run| &*run.agent == "slow").unwrap();
        if !run.is_open() {
            break run;
        }
        tokio::task::yield_now().await;
    };
    drop(held);
    assert_eq!(slow.reason, Some("run.cancelled".into()));
}
