//! Dispatches that are cancelled, abandoned or left to another process.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::{Decision, EventLog, Log, MemoryLog};
use backstop_orchestrator::{LocalOrchestrator, Parallel};
use backstop_provider::{ModelRequest, ScriptedAnswer, ScriptedProvider, ScriptedToolCall};
use backstop_react::{Agent, OperatorTool};
use layer0::Operator;
use layer0::Orchestrator;
use layer0::error::OperatorError;
use layer0::event::WaitFor;
use layer0::operator::{Answer, Context, Signal, Task, Waiting};
use layer0::stop::Stop;
use serde_json::{Value, json};

use crate::agents::{agent, calling, has_answers, pay};
use crate::process::{own, resume, run_of};
use crate::tap::{Tap, recorded};
use crate::workflows::{Hanging, dispatch, echo, named, workflow};
use crate::{builder, on, start};

/// An approver who takes an hour.
struct Slowly(VirtualClock);

#[async_trait]
impl backstop_react::Approver for Slowly {
    async fn decide(&self, _: &backstop_react::ApprovalRequest) -> Option<Decision> {
        self.0.sleep(Duration::from_secs(3_600)).await;
        Some(Decision::approve("ops"))
    }
}

/// Spec: O2. The store is away for one append.
#[tokio::test]
async fn failed_append_of_a_workflow_cancels_no_step() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let agents = |clock: &VirtualClock, log: &Arc<MemoryLog>| {
        let slow = agent(clock, log, |_| ScriptedAnswer::saying("slow answer").delay_ms(60_000));
        builder(clock)
            .operator(echo("quick", clock, log))
            .operator(slow.name("slow").build().unwrap())
    };
    let both = || Parallel::new("both", ["quick", "slow"]);
    let mut tap = Tap::new(&log);
    tap.fails = Mutex::new(Some(("both", "operator.returned")));
    let first = agents(&clock, &log).operator(recorded(both(), &clock, tap)).build().unwrap();
    let first = dispatch(&clock, &first, "both", "x").await;
    on(&clock, {
        let clock = clock.clone();
        async move { clock.sleep(Duration::from_secs(10)).await }
    })
    .await;
    let second = agents(&clock, &log).operator(workflow(both(), &clock, &log)).build().unwrap();
    let answer = resume(&clock, &second, "both", run_of(&log, "both").await).await;
    assert_eq!(answer.unwrap().stop, Stop::Completed);
    assert_ne!(
        first.unwrap().stop,
        Stop::Cancelled,
        "the store was away for a moment, and nobody cancelled it"
    );
}

/// Spec: O2. The store is away for one append.
#[tokio::test]
async fn failed_append_of_an_agent_cancels_no_child() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let mut tap = Tap::new(&log);
    tap.fails = Mutex::new(Some(("lead", "tool.responded")));
    let slow = agent(&clock, &log, |_| ScriptedAnswer::saying("slow answer").delay_ms(60_000));
    let time: Arc<dyn Clock> = Arc::new(clock.clone());
    let model = ScriptedProvider::from_fn(|request: &ModelRequest| match has_answers(request) {
        true => ScriptedAnswer::saying(format!("{:?}", request.messages.messages().last())),
        false => ScriptedAnswer::default().tool_calls([
            ScriptedToolCall::new("c1", "slow", json!({ "input": "go" })),
            ScriptedToolCall::new("c2", "pay", json!({})),
        ]),
    });
    let lead = Agent::builder(model.with_clock(Arc::clone(&time)))
        .clock(time)
        .shared_log(Arc::new(tap) as Arc<dyn EventLog>)
        .name("lead")
        .tool(OperatorTool::new("slow", "Is slow."))
        .tool(pay)
        .state(Arc::<AtomicU32>::default())
        .build()
        .unwrap();
    let orchestrator = builder(&clock)
        .operator(slow.name("slow").build().unwrap())
        .operator(lead)
        .build()
        .unwrap();
    let answer = dispatch(&clock, &orchestrator, "lead", "x").await;
    assert_eq!(answer.unwrap().stop, Stop::Completed);
    let slow = log.summary(&run_of(&log, "slow").await).await.unwrap().unwrap();
    assert_ne!(slow.reason, Some("run.cancelled".into()), "the store was away for a moment");
}

/// Spec: O2.
#[tokio::test]
async fn cancellation_reaches_children_that_wait() {
    for name in ["payer", "middle"] {
        let (clock, log, paid) = (start(), Arc::new(MemoryLog::new()), Arc::<AtomicU32>::default());
        let payer = agent(&clock, &log, |request: &ModelRequest| match has_answers(request) {
            true => ScriptedAnswer::saying("it is paid"),
            false => calling("pay"),
        });
        let payer = payer
            .name("payer")
            .tool(pay)
            .state(Arc::clone(&paid))
            .require_approval("pay")
            .approver(Slowly(clock.clone()))
            .build()
            .unwrap();
        let middle =
            own("middle", |task, context| async move { context.dispatch("payer", task).await });
        let orchestrator = builder(&clock).operator(payer).operator(middle).build().unwrap();
        let time = clock.clone();
        let answer = on(&clock, async move {
            let person = async {
                time.sleep(Duration::from_secs(60)).await;
                let mut ids = orchestrator.in_flight();
                // The root began first.
                ids.sort_by(|one, other| one.as_str().cmp(other.as_str()));
                for id in ids {
                    let state = orchestrator.query(&id).await.unwrap();
                    if state["depth"] == 0 {
                        orchestrator.signal(&id, Signal::cancel()).await.unwrap();
                    }
                }
            };
            let dispatched = orchestrator.dispatch(name, Task::text("x"), Context::root());
            tokio::join!(dispatched, person).0
        })
        .await;
        assert_eq!(answer.unwrap().stop, Stop::Cancelled);
        assert_eq!(paid.load(Ordering::SeqCst), 0, "{name} was cancelled an hour before");
    }
}

/// Spec: O5.
#[tokio::test]
async fn operator_resumes_that_was_about_to_leave() {
    /// Waits, and has its answer when it is asked to suspend.
    struct Decided;
    #[async_trait]
    impl Operator for Decided {
        fn name(&self) -> &str {
            "decided"
        }
        fn can_go_on(&self) -> bool {
            true
        }
        async fn run(&self, _: Task, context: &Context) -> Result<Answer, OperatorError> {
            let caller = context.caller.as_ref().unwrap();
            caller.wait(Waiting::new(WaitFor::Approval, Vec::new())).await;
            Ok(Answer::from_output("decided after all".into()))
        }
    }
    /// Waits, and leaves.
    struct Undecided;
    #[async_trait]
    impl Operator for Undecided {
        fn name(&self) -> &str {
            "undecided"
        }
        fn can_go_on(&self) -> bool {
            true
        }
        async fn run(&self, _: Task, context: &Context) -> Result<Answer, OperatorError> {
            let caller = context.caller.as_ref().unwrap();
            caller.wait(Waiting::new(WaitFor::Approval, Vec::new())).await;
            let mut answer = Answer::from_output(Value::Null);
            answer.stop = Stop::WaitingApproval;
            Ok(answer)
        }
    }
    let mut all = true;
    for others in [false, true] {
        let (clock, log) = (start(), Arc::new(MemoryLog::new()));
        let middle = own("middle", move |task, context| async move {
            let one = async {
                let answer = context.dispatch("decided", task.clone()).await?;
                context.dispatch("after", Task::json(answer.output)).await
            };
            match others {
                false => one.await,
                true => {
                    let two = context.dispatch("undecided", task.clone());
                    let (one, two) = futures_util::future::join(one, two).await;
                    two?;
                    one
                }
            }
        });
        let (after, runs) = named("after");
        let lead = agent(&clock, &log, |request| match has_answers(request) {
            true => ScriptedAnswer::saying("done"),
            false => ScriptedAnswer::calling("middle", json!({ "input": "go" })),
        });
        let middle_tool = OperatorTool::new("middle", "Hands on.").idempotent();
        let orchestrator = builder(&clock)
            .operator(Decided)
            .operator(Undecided)
            .operator(after)
            .operator(middle)
            .operator(lead.name("lead").tool(middle_tool).build().unwrap())
            .build()
            .unwrap();
        dispatch(&clock, &orchestrator, "lead", "x").await.unwrap();
        all &= runs.load(Ordering::SeqCst) == 1;
    }
    assert!(all, "its step has its answer");
}

/// An agent whose endpoint asks to be left alone for an hour, in an orchestrator with one place.
fn parked(clock: &VirtualClock, log: &Arc<MemoryLog>) -> LocalOrchestrator {
    let busy = agent(clock, log, |_| {
        let error = json!({ "kind": "transient", "status": 503, "retry_after_ms": 3_600_000 });
        serde_json::from_value(json!({ "error": error })).unwrap()
    });
    builder(clock)
        .max_concurrent(1)
        .max_park(Duration::from_secs(7_200))
        .operator(busy.name("busy").build().unwrap())
        .operator(Hanging)
        .build()
        .unwrap()
}

/// Spec: O5.
#[tokio::test]
async fn cancelled_parked_dispatch_ends() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let (orchestrator, time) = (parked(&clock, &log), clock.clone());
    let answer = on(&clock, async move {
        let context = Context::root();
        let signals = context.signals.clone();
        let person = async {
            time.sleep(Duration::from_secs(60)).await;
            signals.push(Signal::cancel());
        };
        let dispatched = orchestrator.dispatch("busy", Task::text("x"), context);
        futures_util::future::join(dispatched, person).await.0
    })
    .await;
    assert_eq!(answer.unwrap().stop, Stop::Cancelled);
}

/// Spec: O5.
#[tokio::test]
async fn abandoned_parked_dispatch_needs_no_place() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let (orchestrator, time) = (parked(&clock, &log), clock.clone());
    on(&clock, async move {
        let dispatch = |name| orchestrator.dispatch(name, Task::text("x"), Context::root());
        let patience = async {
            let minute = time.sleep(Duration::from_secs(60));
            drop(futures_util::future::select(dispatch("busy"), minute).await);
            time.sleep(Duration::from_secs(10)).await;
        };
        let other = async {
            time.sleep(Duration::from_secs(30)).await;
            dispatch("hanging").await
        };
        drop(futures_util::future::select(std::pin::pin!(patience), std::pin::pin!(other)).await);
    })
    .await;
    let run = log.summary(&run_of(&log, "busy").await).await.unwrap().unwrap();
    assert_eq!(run.reason, Some("run.cancelled".into()));
}
