//! Child runs whose process died, whose root is stopped, or that are named from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use backstop_clock::Clock;
use backstop_event_log::{
    Batch, EventLog, Log, RunFilter, RunSummary, Runs, open_root, read_events,
};
use backstop_provider::{ErrorKind, ScriptedError, ScriptedProvider};
use backstop_react::{
    Agent, AgentBuilder, AgentError, Limits, ReopenRequest, ResumeError, RunRequest, cancel,
    read_outcome, replay,
};
use backstop_retry::RetryConfig;
use backstop_tool::{ToolContext, ToolError, tool};
use layer0::event::{Event, EventKind};
use layer0::failure::{Chain, Failure};
use layer0::id::RunId;
use layer0::stop::{Outcome, Stop};

use crate::bench::*;
use crate::tape::Tape;
use crate::tree::{World, added_up, calling, root, without_time};

/// Pays, and counts how often.
#[tool]
async fn charge(context: &ToolContext) -> Result<String, ToolError> {
    let charged: &Arc<AtomicU32> = context.state().unwrap();
    charged.fetch_add(1, Ordering::SeqCst);
    Ok("charged".into())
}

/// Never answers.
#[tool(idempotent)]
async fn hang() -> Result<String, ToolError> {
    std::future::pending().await
}

fn agent(bench: &Bench, name: &str, answers: ScriptedProvider) -> AgentBuilder {
    let clock: Arc<dyn Clock> = Arc::new(bench.clock.clone());
    Agent::builder(answers).name(name).clock(clock)
}

async fn events(log: &dyn EventLog, run: &RunId) -> Vec<Event> {
    read_events(log, run).await.unwrap().1
}

async fn run_of(log: &dyn EventLog, agent: &str) -> RunSummary {
    let runs = log.runs(RunFilter::new().agent(agent)).await.unwrap();
    let [run] = &runs[..] else { panic!("one run of {agent}: {runs:?}") };
    run.clone()
}

/// Returns the codes that the calls of a run were answered with; empty where they succeeded.
fn answers(events: &[Event]) -> Vec<String> {
    let code = |event: &Event| match &event.kind {
        EventKind::ToolResponded(answer) => {
            let error = answer.error.as_ref();
            Some(error.map(|error| error.reason.to_string()).unwrap_or_default())
        }
        _ => None,
    };
    events.iter().filter_map(code).collect()
}

/// Returns the number of appends up to the first one with an event of this type, including that one.
fn until(batches: &[Batch], event: &str) -> usize {
    let has = |batch: &Batch| batch.records.iter().any(|record| record.event_type == event);
    batches.iter().position(has).unwrap() + 1
}

/// An agent with a log that calls one without, whose tool acts.
fn lead(bench: &Bench, log: &Arc<dyn EventLog>, charged: &Arc<AtomicU32>) -> AgentBuilder {
    let clerk = agent(bench, "clerk", calling(&[("charge", "")])).tool(charge);
    let clerk = clerk.state(Arc::clone(charged)).build().unwrap();
    let lead = agent(bench, "lead", calling(&[("clerk", "charge it")]));
    lead.shared_log(Arc::clone(log)).tool(clerk.as_tool("Charges."))
}

/// Spec: O3, T1, D5. What an operator without a record did is lost with its process: it is not done twice.
#[tokio::test]
async fn unrecorded_operator_is_not_run_twice() {
    let (bench, charged) = (Bench::new(), Arc::<AtomicU32>::default());
    let tape = Arc::new(Tape::default());
    let log = Arc::clone(&tape) as Arc<dyn EventLog>;
    let agent = lead(&bench, &log, &charged).build().unwrap();
    let request = RunRequest::new("go").run("run_lead".into());
    let outcome = on(&bench, async move { agent.run(request).await }).await.unwrap();
    assert_eq!((outcome.text(), charged.load(Ordering::SeqCst)), ("[[charged]]", 1));

    let batches = tape.batches();
    let tape = Tape::after(&batches[..until(&batches, "operator.dispatched")]).await;
    let log = Arc::clone(&tape) as Arc<dyn EventLog>;
    let agent = lead(&bench, &log, &charged).build().unwrap();
    let outcome = on(&bench, async move { agent.resume("run_lead").await }).await.unwrap();
    assert_eq!(outcome.stop, Stop::Completed);
    assert_eq!(charged.load(Ordering::SeqCst), 1, "it may have acted");
    let events = events(&*tape, &"run_lead".into()).await;
    assert_eq!(answers(&events), ["tool.interrupted"]);
    let kinds = types(&events);
    assert_eq!(kinds.iter().filter(|kind| **kind == "operator.returned").count(), 1);
    replay(&*tape, &"run_lead".into()).await.unwrap();
}

/// Spec: O2, O3. What keeps no record cannot be taken up later: its call is answered where it would wait.
#[tokio::test]
async fn unrecorded_operator_does_not_wait() {
    let bench = Bench::new();
    let clerk = agent(&bench, "clerk", calling(&[("charge", "")])).tool(charge);
    let clerk = clerk.state(Arc::<AtomicU32>::default()).require_approval("charge");
    let tool = clerk.build().unwrap().as_tool("Charges.");
    let lead = agent(&bench, "lead", calling(&[("clerk", "charge it")]));
    let lead = lead.shared_log(Arc::clone(&bench.log) as Arc<dyn EventLog>).tool(tool);
    let outcome = bench.run(lead).await.unwrap();
    assert_eq!(outcome.stop, Stop::Completed);
    let events = bench.events(&outcome.run_id).await;
    assert_eq!(answers(&events), ["tool.execution_failed"]);
    assert!(!types(&events).contains(&"run.waiting"));
}

async fn check_ended(log: &dyn EventLog, place: &str) {
    let mut runs = log.runs(RunFilter::default()).await.unwrap();
    runs.retain(|run| &*run.agent != "next");
    for run in &runs {
        assert!(!run.is_open(), "{place}: {} is left {:?}", run.agent, run.state);
        replay(log, &run.run).await.unwrap();
        let events = events(log, &run.run).await;
        let kinds = types(&events);
        let count = |of: &str| kinds.iter().filter(|kind| **kind == of).count();
        assert_eq!(count("operator.returned"), count("operator.dispatched"), "{place}");
        let asked: usize = events
            .iter()
            .map(|event| match &event.kind {
                EventKind::ModelResponded(answer) => answer.tool_calls.len(),
                _ => 0,
            })
            .sum();
        assert_eq!(count("tool.responded"), asked, "{place}: {}", run.agent);
    }
    if let Some(root) = log.summary(&"run_root".into()).await.unwrap() {
        assert_eq!(without_time(root.usage), added_up(log, &runs).await, "{place}");
    }
}

/// Records a tree that waits for a person.
async fn waiting_tree(bench: &Bench, session: &str) -> Arc<Tape> {
    let (tape, world) = (Arc::new(Tape::default()), Arc::<World>::default());
    let agent = root(bench, &(Arc::clone(&tape) as Arc<dyn EventLog>), &world);
    let request = RunRequest::new("go").run("run_root".into()).session(session);
    let outcome = on(bench, async move { agent.run(request).await }).await.unwrap();
    assert_eq!(outcome.stop, Stop::WaitingApproval);
    tape
}

/// Spec: O2, B3. A root whose process is gone is stopped with everything below it, bottom-up.
#[tokio::test]
async fn cancelled_root_ends_every_run_below() {
    let bench = Bench::new();
    let batches = waiting_tree(&bench, "s").await.batches();
    for at in 1..=batches.len() {
        let place = format!("after {at} appends");
        let tape = Tape::after(&batches[..at]).await;
        let log = Arc::clone(&tape) as Arc<dyn EventLog>;
        assert!(cancel(log, &"run_root".into(), "ops").await.unwrap(), "{place}");
        let root = tape.summary(&"run_root".into()).await.unwrap().unwrap();
        assert_eq!(root.outcome, Some(Outcome::Cancelled), "{place}");
        check_ended(&*tape, &place).await;
    }
}

/// Spec: O2. The next run of a session ends what died in it, with everything below.
#[tokio::test]
async fn next_run_ends_a_dead_tree() {
    let bench = Bench::new();
    let batches = waiting_tree(&bench, "s").await.batches();
    let mut ended = 0;
    for at in (1..batches.len()).step_by(3) {
        let tape = Tape::after(&batches[..at]).await;
        let log = Arc::clone(&tape) as Arc<dyn EventLog>;
        let next = agent(&bench, "next", ScriptedProvider::saying(["hello"])).shared_log(log);
        let next = next.build().unwrap();
        let request = RunRequest::new("and?").session("s");
        on(&bench, async move { next.run(request).await }).await.unwrap();
        check_ended(&*tape, &format!("after {at} appends")).await;
        ended += 1;
    }
    assert!(ended > 5);
}

/// Spec: O2. A record that cannot be followed any more is closed with everything below it.
#[tokio::test]
async fn abandoned_root_ends_every_run_below() {
    let bench = Bench::new();
    let mut batches = waiting_tree(&bench, "s").await.batches();
    let at = until(&batches, "operator.dispatched") + 2;
    batches.truncate(at);
    let tape = Tape::after(&batches).await;
    // The machine of this version does not decide this.
    let root = tape.summary(&"run_root".into()).await.unwrap().unwrap();
    let claim = tape.claim(&root.run).await.unwrap();
    let mut writer = backstop_event_log::RunWriter::resume(Arc::clone(&tape) as _, root, claim);
    let tripped =
        layer0::event::GuardTripped::new("guard.loop_detected", "loop_detected", 3, 3, "stuck");
    let seed = backstop_event_log::Seed::new("s");
    let actor = layer0::event::Actor::Machine;
    writer.stage(&seed, bench.clock.now(), actor, Some(1), tripped.into());
    writer.commit().await.unwrap();
    drop(writer);
    assert!(cancel(Arc::clone(&tape) as _, &"run_root".into(), "ops").await.unwrap());
    for run in tape.log.runs(RunFilter::default()).await.unwrap() {
        assert!(!run.is_open(), "{} {:?}", run.agent, run.state);
    }
    let kinds = types(&events(&*tape, &"run_root".into()).await);
    let count = |of: &str| kinds.iter().filter(|kind| **kind == of).count();
    assert_eq!(count("operator.returned"), count("operator.dispatched"));
}

/// Spec: O3, O5. What a failure says of trying again is the same from its record.
#[tokio::test]
async fn recorded_failure_says_whether_another_attempt_helps() {
    let hinted = |ms| {
        let mut error = ScriptedError::new(ErrorKind::RateLimited);
        error.retry_after_ms = Some(ms);
        says("").error(error)
    };
    let day = 86_400_000;
    for (attempts, failures) in [
        (
            3,
            vec![
                fails(ErrorKind::Transient),
                fails(ErrorKind::Transient),
                fails(ErrorKind::Timeout),
            ],
        ),
        (1, vec![fails(ErrorKind::Transient)]),
        (2, vec![hinted(5), hinted(7)]),
        (3, vec![hinted(day)]),
        (3, vec![fails(ErrorKind::AuthFailed)]),
        (3, vec![fails(ErrorKind::QuotaExhausted)]),
    ] {
        let bench = Bench::new();
        let agent = bench.agent(failures).retry(RetryConfig::new().attempts(attempts));
        let failure = bench.run(agent).await.unwrap_err();
        let error = read_outcome(&*bench.log, &failure.run_id).await.unwrap_err();
        let ResumeError::Run(known) = error else { panic!("{error}") };
        assert!(matches!(known.error, AgentError::Recorded(_)));
        let (live, known_facts) = (failure.facts(), known.facts());
        assert_eq!(known_facts.code, live.code);
        assert_eq!(known_facts.retry_facts(), live.retry_facts(), "{}", Chain(&failure));
        assert_eq!(Chain(&*known).to_string(), Chain(&failure).to_string());
        replay(&*bench.log, &failure.run_id).await.unwrap();
    }
}

/// Spec: O2, T6. A dispatch that only waits keeps no other call from beginning.
#[tokio::test]
async fn waiting_dispatch_gives_its_permit_back() {
    let bench = Bench::new();
    let log = || Arc::clone(&bench.log) as Arc<dyn EventLog>;
    let clerk = agent(&bench, "clerk", calling(&[("charge", "")])).shared_log(log()).tool(charge);
    let clerk = clerk.state(Arc::<AtomicU32>::default()).require_approval("charge");
    let clerk = clerk.build().unwrap();
    let calls = &[("clerk", "one"), ("clerk", "two"), ("clerk", "three")];
    let lead = agent(&bench, "lead", calling(calls)).shared_log(log());
    let lead = lead.limits(Limits::new().max_concurrent_tools(1)).tool(clerk.as_tool("Charges."));
    let outcome = bench.run(lead).await.unwrap();
    assert_eq!((outcome.stop, outcome.approvals.len()), (Stop::WaitingApproval, 3));
}

/// Spec: D5. A tool that brings its process down does so three times, also beside a run that waits below.
#[tokio::test]
async fn crash_loop_beside_a_waiting_run_ends() {
    let bench = Bench::new();
    let build = |tape: &Arc<Tape>| {
        let log = || Arc::clone(tape) as Arc<dyn EventLog>;
        let clerk = agent(&bench, "clerk", calling(&[("charge", "")])).shared_log(log());
        let clerk = clerk.tool(charge).state(Arc::<AtomicU32>::default());
        let clerk = clerk.require_approval("charge").build().unwrap();
        let lead = agent(&bench, "lead", calling(&[("clerk", "charge it"), ("hang", "")]));
        lead.shared_log(log()).tool(clerk.as_tool("Charges.")).tool(hang).build().unwrap()
    };
    let is_stuck = async |tape: &Arc<Tape>| match tape.summary(&"run_lead".into()).await.unwrap() {
        Some(_) => {
            let kinds = types(&events(&**tape, &"run_lead".into()).await);
            let recovered = kinds.iter().filter(|kind| **kind == "run.recovered").count();
            kinds.contains(&"operator.waiting")
                && kinds.contains(&"tool.requested")
                && tape.batches().len() > recovered
        }
        None => false,
    };
    // No time passes: the tool would run into its timeout.
    let held = bench.clock.hold();
    let first = Arc::new(Tape::default());
    let lead = build(&first);
    let request = RunRequest::new("go").run("run_lead".into());
    tokio::spawn(bench.clock.track(Box::pin(async move {
        let _ = lead.run(request).await;
    })));
    while !is_stuck(&first).await {
        tokio::task::yield_now().await;
    }
    let mut batches = first.batches();
    for crash in 1..3 {
        let tape = Tape::after(&batches).await;
        let lead = build(&tape);
        tokio::spawn(bench.clock.track(Box::pin(async move {
            let _ = lead.resume("run_lead").await;
        })));
        let recoveries = async || {
            let kinds = types(&events(&*tape, &"run_lead".into()).await);
            kinds.into_iter().filter(|kind| *kind == "run.recovered").count()
        };
        while recoveries().await < crash {
            tokio::task::yield_now().await;
        }
        batches = tape.batches();
    }
    drop(held);
    let tape = Tape::after(&batches).await;
    let lead = build(&tape);
    let error = on(&bench, async move { lead.resume("run_lead").await }).await.unwrap_err();
    assert_eq!(error.facts().code, "run.crash_loop");
    check_ended(&*tape, "at the end").await;
}

/// Spec: O2. From outside, a run below is gone on with and stopped at its root, by the root's agent.
#[tokio::test]
async fn run_below_is_named_for_its_root() {
    let bench = Bench::new();
    let batches = waiting_tree(&bench, "s").await.batches();
    let tape = Tape::after(&batches).await;
    let log = Arc::clone(&tape) as Arc<dyn EventLog>;
    let payer = run_of(&*tape, "payer").await;
    assert_eq!(open_root(&*tape, &payer).await.unwrap(), Some("run_root".into()));

    // An agent other than the root's cannot resume the root.
    let stranger = agent(&bench, "payer", calling(&[])).shared_log(Arc::clone(&log));
    let error = stranger.build().unwrap().resume(payer.run.clone()).await.unwrap_err();
    let ResumeError::CallerOpen { run, root: named, .. } = error else { panic!("{error}") };
    assert_eq!((run, named), (payer.run.clone(), "run_root".into()));

    let agent = root(&bench, &log, &Arc::<World>::default());
    let (resumed, run) = (agent.clone(), payer.run.clone());
    let outcome = on(&bench, async move { resumed.resume(run).await }).await.unwrap();
    assert_eq!((outcome.run_id, outcome.stop), ("run_root".into(), Stop::WaitingApproval));

    // A finished child run stays as it is; its root is resumed.
    let looker = run_of(&*tape, "looker").await;
    assert!(!looker.is_open());
    let (reopened, run) = (agent.clone(), looker.run.clone());
    let outcome = on(&bench, async move { reopened.reopen(run).await }).await.unwrap();
    assert_eq!(outcome.run_id, "run_root".into());
    let request = ReopenRequest::new(looker.run.clone()).message("once more");
    let error = agent.reopen(request).await.unwrap_err();
    assert!(matches!(error, ResumeError::CallerOpen { .. }), "{error}");

    assert!(agent.cancel(&payer.run, "ops").await.unwrap());
    let root = tape.summary(&"run_root".into()).await.unwrap().unwrap();
    assert_eq!(root.outcome, Some(Outcome::Cancelled));
    check_ended(&*tape, "at the end").await;
}
