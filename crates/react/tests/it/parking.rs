//! Runs that wait for a time, without a process.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::{EventLog, Log, RunState};
use backstop_provider::ScriptedAnswer;
use backstop_react::{AgentBuilder, ForkRequest, ResumeRequest, RunOutcome, RunRequest, replay};
use backstop_tool::{ToolContext, ToolError, tool};
use layer0::event::EventKind;
use layer0::id::RunId;
use layer0::stop::Stop;
use serde_json::json;

use crate::bench::*;

const HOUR: Duration = Duration::from_secs(3_600);

fn busy() -> ScriptedAnswer {
    let error = json!({ "error": { "kind": "rate_limited", "retry_after_ms": 3_600_000 } });
    serde_json::from_value(error).unwrap()
}

async fn run(bench: &Bench, agent: AgentBuilder, request: RunRequest) -> RunOutcome {
    let agent = agent.build().unwrap();
    on(bench, async move { agent.run(request).await.unwrap() }).await
}

async fn resume(bench: &Bench, agent: AgentBuilder, run: &RunId) -> RunOutcome {
    let (agent, request) =
        (agent.build().unwrap(), ResumeRequest::new(run.clone()).max_park(HOUR * 2));
    on(bench, async move { agent.resume(request).await.unwrap() }).await
}

async fn sleep(bench: &Bench, time: Duration) {
    let clock = bench.clock.clone();
    on(bench, async move { clock.sleep(time).await }).await;
}

/// Spec: O5, D4. A hint that is too long to wait for parks the run; resumed when it is due, it goes on.
#[tokio::test]
async fn a_long_hint_parks_the_run() {
    let bench = Bench::new();
    let first = bench.agent(vec![calls([call("c1", "add", json!({"x": 1, "y": 2}))]), busy()]);
    let request = RunRequest::new("add").max_park(HOUR * 2);
    let parked = run(&bench, first.name("a").tool(add), request).await;
    assert_eq!(bench.elapsed(), Duration::ZERO, "no process waits");
    let until = parked.parked_until.unwrap();
    let wait = until.since(bench.clock.now());
    assert!(wait >= HOUR && wait < HOUR * 2, "{wait:?}");
    let of = parked.run_id.clone();
    let summary = bench.log.summary(&of).await.unwrap().unwrap();
    assert_eq!((summary.state, summary.is_open()), (RunState::Parked, true));
    assert_eq!(summary.parked.map(|(_, until)| until), Some(until));
    let kinds = types(&bench.events(&of).await);
    assert_eq!(kinds[kinds.len() - 3..], ["model.attempted", "run.parked", "run.waiting"]);
    let parked_event = bench.events(&of).await.into_iter().find_map(|event| match event.kind {
        EventKind::RunParked(parked) => Some(parked),
        _ => None,
    });
    assert_eq!(parked_event.unwrap().reason, "provider.rate_limited");

    let again = || bench.agent(vec![says("3")]).name("a").tool(add);
    let early = resume(&bench, again(), &of).await;
    assert_eq!((early.parked_until, early.usage.model_attempts), (Some(until), 2), "too early");
    sleep(&bench, wait).await;
    let done = resume(&bench, again(), &of).await;
    assert_eq!((done.stop, &*done.output, done.parked_until), (Stop::Completed, "3", None));
    assert_eq!((done.usage.model_calls, done.usage.model_attempts), (2, 3));
    assert!(
        done.usage.wall_ms < 1_000,
        "time without a process is not the run's: {:?}",
        done.usage
    );
    assert!(replay(&*bench.log, &of).await.unwrap().is_some());
    let summary = bench.log.summary(&of).await.unwrap().unwrap();
    assert_eq!((summary.state, summary.usage), (RunState::Finished, done.usage));
}

/// Spec: O5, R3. Nothing is parked that was not allowed to be, nor for longer.
#[tokio::test]
async fn a_hint_beyond_the_limit_fails_the_run() {
    for longest in [None, Some(HOUR / 2)] {
        let bench = Bench::new();
        let agent = bench.agent(vec![busy()]).build().unwrap();
        let mut request = RunRequest::new("go");
        if let Some(longest) = longest {
            request = request.max_park(longest);
        }
        let failure = on(&bench, async move { agent.run(request).await.unwrap_err() }).await;
        assert_eq!(failure.code(), "provider.rate_limited", "{longest:?}");
    }
}

/// Spec: O5, B3. A parked run is cancelled like any that has no process.
#[tokio::test]
async fn a_parked_run_can_be_cancelled() {
    let bench = Bench::new();
    let agent = bench.agent(vec![busy()]);
    let parked = run(&bench, agent, RunRequest::new("go").max_park(HOUR)).await;
    let log: Arc<dyn EventLog> = Arc::clone(&bench.log) as _;
    assert!(backstop_react::cancel(log, &parked.run_id, "ops").await.unwrap());
    let summary = bench.log.summary(&parked.run_id).await.unwrap().unwrap();
    assert_eq!(summary.reason.unwrap(), "run.cancelled");
    assert!(replay(&*bench.log, &parked.run_id).await.unwrap().is_some());
}

/// Sets the time of day a day ahead.
#[tool(idempotent)]
async fn set_ahead(context: &ToolContext) -> Result<String, ToolError> {
    let clock: &VirtualClock = context.state().unwrap();
    clock.set_time_of_day(86_400_000);
    Ok("set".into())
}

/// Spec: D1, O5
#[tokio::test]
async fn setting_the_clock_moves_no_parking() {
    let bench = Bench::new();
    let agent = bench.agent(vec![calls([call("c1", "set_ahead", json!({}))]), busy()]);
    let agent = agent.name("a").tool(set_ahead).state(bench.clock.clone());
    let parked = run(&bench, agent, RunRequest::new("wait").max_park(HOUR * 2)).await;
    let summary = bench.log.summary(&parked.run_id).await.unwrap().unwrap();
    let wait = parked.parked_until.unwrap().since(summary.started_at);
    assert!(wait >= HOUR && wait < HOUR * 2, "{wait:?}");
}

/// Spec: D7, O5. The endpoint told the copied run to come back later, and not the copy.
#[tokio::test]
async fn copy_of_a_parked_run_goes_on() {
    let bench = Bench::new();
    let request = RunRequest::new("hello").max_park(HOUR * 2);
    let parked = run(&bench, bench.agent(vec![busy()]).name("a"), request).await;
    let last = bench.events(&parked.run_id).await.len() as u64;
    for at in [last - 1, last] {
        let agent = bench.agent(vec![says("done")]).name("a").build().unwrap();
        let fork = ForkRequest::new(parked.run_id.clone(), at);
        let copy = on(&bench, async move { agent.fork(fork).await.unwrap() }).await;
        assert_eq!((&copy.stop, copy.text()), (&Stop::Completed, "done"));
        assert!(replay(&*bench.log, &copy.run_id).await.unwrap().is_some());
    }
}
