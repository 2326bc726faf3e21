//! Requests of operators for more than their callers gave them.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::MemoryLog;
use backstop_orchestrator::Parallel;
use backstop_provider::ScriptedAnswer;
use backstop_react::Agent;
use futures_util::future::join;
use layer0::error::{OperatorError, OrchError};
use layer0::event::WaitFor;
use layer0::operator::{Answer, Caller, Context, Task, Waiting};
use layer0::stop::Stop;
use layer0::usage::{Allowance, Usage};
use layer0::{Operator, Orchestrator};
use serde_json::json;

use crate::agents::{agent, pay};
use crate::process::own;
use crate::workflow_bounds::model_calls;
use crate::workflows::workflow;
use crate::{builder, on, start};

/// A caller that notes each request for more, and grants some model calls after a while unless it refuses.
struct Giver {
    asked: Mutex<Vec<u32>>,
    refuses: u32,
    grants: u32,
    clock: VirtualClock,
}

impl Giver {
    fn new(clock: &VirtualClock, refuses: u32) -> Arc<Self> {
        Self::granting(clock, refuses, 1)
    }

    fn granting(clock: &VirtualClock, refuses: u32, grants: u32) -> Arc<Self> {
        Arc::new(Self { asked: Mutex::default(), refuses, grants, clock: clock.clone() })
    }
}

#[async_trait]
impl Caller for Giver {
    fn report_usage(&self, _: Usage) {}
    async fn wait(&self, _: Waiting) {
        std::future::pending::<()>().await;
    }
    async fn more(&self, given: u32) -> Option<Allowance> {
        self.asked.lock().unwrap().push(given);
        self.clock.sleep(Duration::from_secs(1)).await;
        (given >= self.refuses).then(|| model_calls(self.grants))
    }
    async fn retry(&self, _: u32) -> Result<(), OrchError> {
        Ok(())
    }
}

/// An agent that calls its tool so many times.
fn talker(name: &str, clock: &VirtualClock, log: &Arc<MemoryLog>, calls: u32) -> Agent {
    let n = AtomicU32::new(0);
    let talker = agent(clock, log, move |_| match n.fetch_add(1, Ordering::SeqCst) {
        at if at >= calls => ScriptedAnswer::saying("done"),
        at => ScriptedAnswer::calling("pay", json!({ "at": at })),
    });
    talker.name(name).tool(pay).state(Arc::<AtomicU32>::default()).build().unwrap()
}

/// Spec: B1. A grant is given once: to an operator without a record, or to those below it.
#[tokio::test]
async fn grant_goes_to_one_of_operator_and_runs() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let giver = Giver::new(&clock, 0);
    let code = own("own", |task, context: Context| async move {
        let caller = context.caller.clone().unwrap();
        let own = (caller.more(0).await, caller.more(0).await, caller.more(1).await);
        assert_eq!(own, (Some(model_calls(1)), Some(model_calls(1)), Some(model_calls(1))));
        context.dispatch("talker", task).await
    });
    let orchestrator =
        builder(&clock).operator(talker("talker", &clock, &log, 2)).operator(code).build().unwrap();
    let mut context = Context::root();
    (context.allowance, context.caller) = (Some(model_calls(1)), Some(Arc::clone(&giver) as _));
    let answer =
        on(&clock, async move { orchestrator.dispatch("own", Task::text("x"), context).await });
    assert_eq!(answer.await.unwrap().stop, Stop::Completed);
    assert_eq!(*giver.asked.lock().unwrap(), [0, 1, 2, 3], "each request is another one");
}

/// Spec: B1, O6. A request that was refused is over, in the process that made it as in a later one.
#[tokio::test]
async fn refused_request_is_not_made_again() {
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let giver = Giver::new(&clock, 1);
    let code = own("own", |task: Task, context| async move {
        let first = context.step("one").dispatch("talker", task.clone()).await?;
        assert_eq!(first.stop.reason().unwrap(), *"budget.model_calls");
        context.step("two").dispatch("talker", task).await
    });
    let orchestrator = builder(&clock)
        .operator(talker("talker", &clock, &log, 1))
        .operator(workflow(code, &clock, &log))
        .build()
        .unwrap();
    let mut context = Context::root();
    (context.allowance, context.caller) = (Some(model_calls(1)), Some(Arc::clone(&giver) as _));
    let answer =
        on(&clock, async move { orchestrator.dispatch("own", Task::text("x"), context).await });
    assert_eq!(answer.await.unwrap().stop, Stop::Completed);
    assert_eq!(*giver.asked.lock().unwrap(), [0, 1]);
}

/// Spec: B1, O2. Steps that have used up what they got at the same time share one grant.
#[tokio::test]
async fn steps_that_want_more_ask_once() {
    for name in ["line", "plain"] {
        let (clock, log) = (start(), Arc::new(MemoryLog::new()));
        let giver = Giver::granting(&clock, 0, 8);
        let both = |name| Parallel::new(name, ["left", "right"]);
        let orchestrator = builder(&clock)
            .operator(talker("left", &clock, &log, 2))
            .operator(talker("right", &clock, &log, 2))
            .operator(workflow(both("line"), &clock, &log))
            .operator(both("plain"))
            .build()
            .unwrap();
        let mut context = Context::root();
        (context.allowance, context.caller) = (Some(model_calls(4)), Some(Arc::clone(&giver) as _));
        let dispatch =
            async move { orchestrator.dispatch(name, Task::text("x"), context).await.unwrap() };
        let answer = on(&clock, dispatch).await;
        assert_eq!((answer.stop, answer.usage.model_attempts), (Stop::Completed, 6), "{name}");
        assert_eq!(*giver.asked.lock().unwrap(), [0], "{name}");
    }
}

/// An operator that waits, suspends with an answer when asked to, and takes a while for that.
struct Waiter {
    name: &'static str,
    waiting: Waiting,
    lingers: Duration,
    clock: VirtualClock,
    /// The number of runs that wait.
    waits: AtomicU32,
}

#[async_trait]
impl Operator for Waiter {
    fn name(&self) -> &str {
        self.name
    }
    fn can_go_on(&self) -> bool {
        true
    }
    async fn run(&self, _: Task, context: &Context) -> Result<Answer, OperatorError> {
        let mut answer = Answer::from_output("there".into());
        if self.waits.load(Ordering::SeqCst) == 0 {
            return Ok(answer);
        }
        self.waits.fetch_sub(1, Ordering::SeqCst);
        context.caller.clone().unwrap().wait(self.waiting.clone()).await;
        self.clock.sleep(self.lingers).await;
        (answer.stop, answer.parked_until) = (Stop::WaitingApproval, self.waiting.until);
        Ok(answer)
    }
}

/// Spec: O2, O5, O6. A run below that is parked continues in time, whatever else its workflow waits for later.
#[tokio::test]
async fn parked_step_continues_beside_an_approval() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let (clock, log) = (start(), Arc::new(MemoryLog::new()));
    let waiter = |name, waiting, lingers| Waiter {
        name,
        waiting,
        lingers: Duration::from_secs(lingers),
        clock: clock.clone(),
        waits: AtomicU32::new(1),
    };
    let due = clock.now().after(HOUR);
    let mut parked = Waiting::new(WaitFor::Parked, Vec::new());
    parked.until = Some(due);
    let asking = Waiting::new(WaitFor::Approval, vec!["apr_1".into()]);
    // It has its answer when it is asked to suspend, so that the code continues.
    let late = own("late", |_, context: Context| async move {
        context.caller.clone().unwrap().wait(Waiting::new(WaitFor::Parked, Vec::new())).await;
        Ok(Answer::from_output("late".into()))
    });
    let code = own("own", |task: Task, context: Context| async move {
        let first = context.step("parked");
        let parked = first.dispatch("parked", task.clone());
        let then = async {
            context.step("late").dispatch("late", task.clone()).await?;
            context.step("asking").dispatch("asking", task.clone()).await
        };
        let (parked, asked) = join(parked, then).await;
        parked?;
        asked
    });
    let orchestrator = builder(&clock)
        .operator(waiter("parked", parked, 10))
        .operator(waiter("asking", asking, 20))
        .operator(late)
        .operator(workflow(code, &clock, &log))
        .build()
        .unwrap();
    let time = clock.clone();
    let ended = on(&clock, async move {
        let task = Task::text("x").idempotent();
        let answer = orchestrator.dispatch("own", task, Context::root()).await.unwrap();
        (answer.output, time.now())
    });
    let (output, at) = ended.await;
    assert_eq!(output, "there");
    assert!(at >= due);
}
