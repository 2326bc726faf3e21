//! Deadlines of parked dispatches: the time without a process counts for none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::MemoryLog;
use backstop_orchestrator::Sequence;
use backstop_provider::ScriptedAnswer;
use backstop_react::OperatorTool;
use layer0::error::OperatorError;
use layer0::message::Message;
use layer0::operator::{Answer, Context, Task};
use layer0::stop::Stop;
use layer0::{Operator, Orchestrator};
use serde_json::{Value, json};

use crate::agents::agent;
use crate::parked::{HOUR, busy};
use crate::process::own;
use crate::waits::{Slow, asking};
use crate::workflows::workflow;
use crate::{Sleeps, builder, on, start};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR_MS: i64 = 3_600_000;

/// Works for a minute, parks itself for an hour, and answers with the seconds left until its deadline.
struct Parks {
    clock: VirtualClock,
    /// The step of the time of day while it works.
    step_ms: i64,
    was_parked: AtomicBool,
}

#[async_trait]
impl Operator for Parks {
    fn name(&self) -> &str {
        "parks"
    }
    fn can_go_on(&self) -> bool {
        true
    }
    async fn run(&self, _: Task, context: &Context) -> Result<Answer, OperatorError> {
        if self.was_parked.swap(true, Ordering::SeqCst) {
            let left = context.deadline.unwrap().since(self.clock.now());
            return Ok(Answer::from_output(json!(left.as_secs())));
        }
        self.clock.sleep(MINUTE).await;
        self.clock.set_time_of_day(self.step_ms);
        let mut answer = Answer::from_output(Value::Null);
        (answer.stop, answer.run) = (Stop::WaitingApproval, context.run.clone());
        answer.parked_until = Some(self.clock.now().after(HOUR));
        Ok(answer)
    }
}

/// Spec: O2, O5, D1
#[tokio::test]
async fn set_clock_moves_no_deadline_of_parked_dispatch() {
    for (at_work, parked) in
        [(0, 0), (HOUR_MS, 0), (-HOUR_MS, 0), (0, HOUR_MS), (0, -HOUR_MS), (0, -3 * HOUR_MS)]
    {
        let clock = start();
        let parks =
            Parks { clock: clock.clone(), step_ms: at_work, was_parked: AtomicBool::new(false) };
        let orchestrator = builder(&clock).operator(parks).build().unwrap();
        let mut context = Context::root();
        context.deadline = Some(clock.now().after(10 * MINUTE));
        let time = clock.clone();
        let answer = on(&clock, async move {
            let steps = async {
                time.sleep(30 * MINUTE).await;
                time.set_time_of_day(parked);
            };
            let dispatch = orchestrator.dispatch("parks", Task::text("x"), context);
            tokio::join!(dispatch, steps).0
        });
        let answer = answer.await.unwrap();
        assert_eq!(answer.output, json!(9 * 60), "{at_work} {parked}");
        assert_eq!(clock.monotonic(), HOUR + MINUTE, "{at_work} {parked}");
    }
}

/// Spec: O2, O5. Nor does the wait for a permit count after that time.
#[tokio::test]
async fn parked_time_counts_for_no_deadline() {
    for name in ["busy", "line"] {
        let (clock, log) = (start(), Arc::new(MemoryLog::new()));
        let orchestrator = builder(&clock)
            .operator(busy(&clock, &log, 1).build().unwrap())
            .operator(workflow(Sequence::new("line", ["busy"]), &clock, &log))
            .operator(Sleeps(clock.clone()))
            .max_concurrent(1)
            .max_park(2 * HOUR)
            .build()
            .unwrap();
        let mut context = Context::root();
        context.deadline = Some(clock.now().after(MINUTE / 2));
        let time = clock.clone();
        let work = async move {
            let other = async {
                time.sleep(HOUR - Duration::from_secs(10)).await;
                orchestrator.dispatch("sleeps", Task::text("x"), Context::root()).await.unwrap();
            };
            tokio::join!(orchestrator.dispatch(name, Task::text("x"), context), other).0
        };
        let answer = on(&clock, work).await.unwrap();
        assert_eq!((answer.stop, answer.output), (Stop::Completed, json!("I am back.")), "{name}");
        assert_eq!(clock.monotonic(), HOUR + Duration::from_secs(50), "it waited for the permit");
    }
}

/// Spec: B3, O2, O5
#[tokio::test]
async fn deadline_holds_behind_the_parked_time() {
    for name in ["busy", "line"] {
        let (clock, log) = (start(), Arc::new(MemoryLog::new()));
        let asked = AtomicU32::new(0);
        let busy = agent(&clock, &log, move |_| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => {
                let error =
                    json!({ "kind": "transient", "status": 503, "retry_after_ms": 3_600_000 });
                serde_json::from_value(json!({ "error": error })).unwrap()
            }
            _ => ScriptedAnswer::saying("late").delay_ms(3_600_000),
        });
        let orchestrator = builder(&clock)
            .operator(busy.name("busy").build().unwrap())
            .operator(workflow(Sequence::new("line", ["busy"]), &clock, &log))
            .max_park(2 * HOUR)
            .build()
            .unwrap();
        let mut context = Context::root();
        context.deadline = Some(clock.now().after(10 * MINUTE));
        let dispatch =
            async move { orchestrator.dispatch(name, Task::text("x"), context).await.unwrap() };
        let answer = on(&clock, dispatch).await;
        assert_eq!(answer.stop.reason(), Some("budget.wall_time".into()), "{name}");
        let worked = clock.monotonic() - HOUR;
        assert!(worked >= 10 * MINUTE && worked < 12 * MINUTE, "{name}: {worked:?}");
    }
}

/// Spec: O2. A wait for a person before the parked time counts for no deadline behind it.
#[tokio::test]
async fn waits_before_the_parked_time_count_for_nothing() {
    for name in ["lead", "own"] {
        let (clock, log) = (start(), Arc::new(MemoryLog::new()));
        let payer = asking(&clock, &log, &Arc::default()).approver(Slow(clock.clone()));
        let lead = agent(&clock, &log, |request| {
            let is_answer = |message: &&Arc<Message>| matches!(***message, Message::Tool { .. });
            match request.messages.messages().iter().filter(is_answer).count() {
                0 => ScriptedAnswer::calling("payer", json!({ "input": "pay" })),
                1 => ScriptedAnswer::calling("busy", json!({ "input": "go" })),
                _ => ScriptedAnswer::saying("I am back."),
            }
        });
        let lead = lead
            .name("lead")
            .tool(OperatorTool::new("payer", "Pays."))
            .tool(OperatorTool::new("busy", "Works."));
        let code = own("own", |task: Task, context: Context| async move {
            context.step("pay").dispatch("payer", task.clone()).await?;
            context.step("work").dispatch("busy", task).await
        });
        let orchestrator = builder(&clock)
            .operator(payer.build().unwrap())
            .operator(busy(&clock, &log, 1).build().unwrap())
            .operator(lead.build().unwrap())
            .operator(workflow(code, &clock, &log))
            .max_park(2 * HOUR)
            .build()
            .unwrap();
        let mut context = Context::root();
        context.deadline = Some(clock.now().after(10 * MINUTE));
        let dispatch =
            async move { orchestrator.dispatch(name, Task::text("x"), context).await.unwrap() };
        let answer = on(&clock, dispatch).await;
        assert_eq!((answer.stop, answer.output), (Stop::Completed, json!("I am back.")), "{name}");
        assert!(clock.monotonic() >= 2 * HOUR, "{name}");
    }
}
