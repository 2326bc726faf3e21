//! Runs that an endpoint refuses for a long time: parked, and resumed when they are due.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::{EventLog, Log, MemoryLog, RunFilter, RunState, Runs, read_events};
use backstop_provider::{ModelRequest, ScriptedAnswer, ScriptedToolCall};
use backstop_react::{AgentBuilder, OperatorTool, RunRequest, replay};
use layer0::Orchestrator;
use layer0::event::{EventKind, WaitFor};
use layer0::id::WorkflowId;
use layer0::operator::{Context, Signal, Task};
use layer0::stop::Stop;
use serde_json::json;

use crate::agents::{agent, has_answers};
use crate::{builder, on, start};

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// An agent whose endpoint wants to be left alone for an hour, so many times.
pub(crate) fn busy(clock: &VirtualClock, log: &Arc<MemoryLog>, times: u32) -> AgentBuilder {
    let left = AtomicU32::new(times);
    let answer = move |_: &ModelRequest| match left.load(Ordering::SeqCst) {
        0 => ScriptedAnswer::saying("I am back."),
        some => {
            left.store(some - 1, Ordering::SeqCst);
            let error = json!({ "kind": "transient", "status": 503, "retry_after_ms": 3_600_000 });
            serde_json::from_value(json!({ "error": error })).unwrap()
        }
    };
    agent(clock, log, answer).name("busy")
}

/// Spec: O5. A parked run takes no permit; it goes on when it is due.
#[tokio::test]
async fn parked_run_gives_its_permit_back() {
    let (clock, log) = (start(), Arc::<MemoryLog>::default());
    let quick = agent(&clock, &log, |_| ScriptedAnswer::saying("quick")).name("quick");
    let orchestrator = builder(&clock)
        .operator(busy(&clock, &log, 1).build().unwrap())
        .operator(quick.build().unwrap())
        .max_concurrent(1)
        .max_park(2 * HOUR)
        .build()
        .unwrap();
    let began = clock.now();
    let time = clock.clone();
    let work = async move {
        let first = async {
            let answer = orchestrator.dispatch("busy", Task::text("x"), Context::root()).await;
            (answer.unwrap(), time.now())
        };
        let second = async {
            time.sleep(Duration::from_secs(60)).await;
            let answer = orchestrator.dispatch("quick", Task::text("x"), Context::root()).await;
            (answer.unwrap(), time.now())
        };
        tokio::join!(first, second)
    };
    let ((busy, ended), (quick, answered)) = on(&clock, work).await;
    assert_eq!((busy.stop, quick.stop), (Stop::Completed, Stop::Completed));
    assert!(answered.since(began) < 2 * Duration::from_secs(60), "it did not wait for the permit");
    assert!(ended.since(began) >= HOUR, "never earlier than asked");
    let run = busy.run.unwrap();
    let (summary, events) = read_events(&*log, &run).await.unwrap();
    assert!(summary.usage.wall_ms < 60_000, "the time aside does not count: {:?}", summary.usage);
    let parked = events.iter().filter(|it| it.kind.event_type() == "run.parked").count();
    assert_eq!(parked, 1);
    replay(&*log, &run).await.unwrap();
}

/// Spec: O5, O2. A run below tells its caller; the root is parked once nothing below runs.
#[tokio::test]
async fn run_below_parks_its_root() {
    let (clock, log) = (start(), Arc::<MemoryLog>::default());
    let lead = agent(&clock, &log, |request| match has_answers(request) {
        true => ScriptedAnswer::saying("They are back."),
        false => ScriptedAnswer::default().tool_calls([ScriptedToolCall::new(
            "c1",
            "busy",
            json!({ "input": "x" }),
        )]),
    });
    let tool = OperatorTool::new("busy", "Works.");
    let lead = lead.name("lead").tool(tool).build().unwrap();
    let orchestrator = builder(&clock)
        .operator(lead)
        .operator(busy(&clock, &log, 2).build().unwrap())
        .build()
        .unwrap();
    let began = clock.now();
    let work = async move {
        let task = Task::text("x").max_park(2 * HOUR);
        orchestrator.dispatch("lead", task, Context::root()).await.unwrap()
    };
    let answer = on(&clock, work).await;
    assert_eq!((answer.stop, answer.output), (Stop::Completed, json!("They are back.")));
    assert!(clock.now().since(began) >= 2 * HOUR, "turned away twice");
    assert_eq!(answer.usage.model_attempts, 5, "two of the lead, three of the run below");
    let (_, events) = read_events(&*log, &answer.run.unwrap()).await.unwrap();
    let waits = events.iter().filter_map(|event| match &event.kind {
        EventKind::OperatorWaiting(waiting) => Some(waiting.r#for),
        _ => None,
    });
    assert_eq!(waits.collect::<Vec<_>>(), [WaitFor::Parked], "said once");
    let parked = events.iter().filter_map(|event| match &event.kind {
        EventKind::RunParked(parked) => Some(parked.reason.as_str()),
        _ => None,
    });
    let parked: Vec<_> = parked.collect();
    assert_eq!(
        parked, ["provider.transient"; 2],
        "the root is parked each time, for what is below"
    );
    for run in log.runs(RunFilter::default()).await.unwrap() {
        assert_eq!(run.state, RunState::Finished, "{}", run.agent);
        replay(&*log, &run.run).await.unwrap();
    }
}

/// Spec: O4, O5. A signal ends what is parked at once.
#[tokio::test]
async fn parked_run_hears_a_signal() {
    let (clock, log) = (start(), Arc::<MemoryLog>::default());
    let orchestrator = builder(&clock)
        .operator(busy(&clock, &log, 9).build().unwrap())
        .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
        .max_park(2 * HOUR)
        .build()
        .unwrap();
    let began = clock.now();
    let time = clock.clone();
    let work = async move {
        let person = async {
            time.sleep(Duration::from_secs(60)).await;
            let run: WorkflowId = orchestrator.in_flight().remove(0);
            orchestrator.signal(&run, Signal::cancel()).await.unwrap();
        };
        let dispatch = orchestrator.dispatch("busy", Task::text("x"), Context::root());
        tokio::join!(dispatch, person).0.unwrap()
    };
    let answer = on(&clock, work).await;
    assert_eq!(answer.stop, Stop::Cancelled);
    assert!(clock.now().since(began) < HOUR, "it is not waited for");
}

/// Spec: O5. What is parked outlives its process: another one goes on with it when it is due.
#[tokio::test]
async fn another_process_goes_on_when_due() {
    let (clock, log) = (start(), Arc::<MemoryLog>::default());
    let first = busy(&clock, &log, 1).build().unwrap();
    let request = RunRequest::new("x").max_park(2 * HOUR);
    let parked = on(&clock, async move { first.run(request).await.unwrap() }).await;
    assert!(parked.parked_until.is_some());
    let next = busy(&clock, &log, 0).build().unwrap();
    let orchestrator = builder(&clock).operator(next).build().unwrap();
    let (began, run) = (clock.now(), parked.run_id.clone());
    let answer = on(&clock, async move { orchestrator.resume("busy", run).await.unwrap() }).await;
    assert_eq!((answer.stop, answer.output), (Stop::Completed, json!("I am back.")));
    assert!(clock.now().since(began) >= HOUR, "it waits until it is due");
    replay(&*log, &parked.run_id).await.unwrap();
}

/// Spec: O5. One that another process took up is answered from its record once it is over there.
#[tokio::test]
async fn parked_run_may_go_on_elsewhere() {
    let (clock, log) = (start(), Arc::<MemoryLog>::default());
    let orchestrator = builder(&clock).operator(busy(&clock, &log, 1).build().unwrap());
    let orchestrator = orchestrator.max_park(2 * HOUR).build().unwrap();
    let (time, of) = (clock.clone(), Arc::clone(&log));
    let work = async move {
        let elsewhere = async {
            time.sleep(HOUR - Duration::from_secs(60)).await;
            let run = of.runs(RunFilter::default()).await.unwrap().remove(0).run;
            let claim = of.claim(&run).await.unwrap();
            time.sleep(2 * HOUR).await;
            drop(claim);
        };
        let dispatch = orchestrator.dispatch("busy", Task::text("x"), Context::root());
        tokio::join!(dispatch, elsewhere).0
    };
    let began = clock.now();
    let answer = on(&clock, work).await.unwrap();
    assert_eq!(answer.output, json!("I am back."));
    assert!(clock.now().since(began) > 2 * HOUR);
}
