//! Messages to runs that wait or that are ending.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backstop_clock::Clock;
use backstop_event_log::{Decision, Inbox, InboxRequest, Log, RunState};
use backstop_provider::{ErrorKind, ScriptedAnswer};
use backstop_react::{
    Agent, HookContext, HookPoint, Moment, Observer, ReopenRequest, RunRequest, replay,
};
use backstop_tool::{ToolError, tool};
use layer0::JsonText;
use layer0::error::BoxError;
use layer0::stop::Stop;
use serde_json::json;

use crate::bench::*;

/// Pays.
#[tool(name = "pay", approval)]
async fn pay() -> Result<String, ToolError> {
    Ok("paid".into())
}

fn payer(bench: &Bench) -> Agent {
    let answers = vec![ScriptedAnswer::calling("pay", json!({})), says("done"), says("done")];
    bench.agent(answers).name("payer").tool(pay).build().unwrap()
}

async fn waiting_run(bench: &Bench) {
    let (agent, request) = (payer(bench), RunRequest::new("go").run("run_1".into()));
    let outcome = on(bench, async move { agent.run(request).await }).await.unwrap();
    assert_eq!(outcome.stop, Stop::WaitingApproval);
}

async fn resumed(bench: &Bench) -> Stop {
    let agent = bench.agent(vec![says("done")]).name("payer").tool(pay).build().unwrap();
    on(bench, async move { agent.resume("run_1").await }).await.unwrap().stop
}

async fn send(bench: &Bench, request: InboxRequest) -> bool {
    bench.log.send(request, "ops", bench.clock.now()).await.unwrap()
}

fn input() -> InboxRequest {
    InboxRequest::Input { run: "run_1".into(), text: "hurry".into() }
}

fn signal() -> InboxRequest {
    let data = JsonText::parse("{}").unwrap();
    InboxRequest::Signal { run: "run_1".into(), name: "note".into(), data, cause: None }
}

async fn approve(bench: &Bench) {
    let open = bench.log.open_approvals().await.unwrap().remove(0);
    let decision = Decision::approve("ops");
    assert!(bench.log.decide(&open.id, decision, bench.clock.now()).await.unwrap());
}

/// Spec: D4. Workers take what runs: a run that waits, and is told something, goes on waiting.
#[tokio::test]
async fn waiting_run_that_is_told_something_waits() {
    let bench = Bench::new();
    waiting_run(&bench).await;
    for request in [signal(), input(), signal()] {
        assert!(send(&bench, request).await);
        assert_eq!(resumed(&bench).await, Stop::WaitingApproval);
        let row = bench.log.summary(&"run_1".into()).await.unwrap().unwrap();
        assert_eq!(row.state, RunState::WaitingApproval);
    }
    approve(&bench).await;
    assert_eq!(resumed(&bench).await, Stop::Completed);
    let events = bench.events(&"run_1".into()).await;
    let count = |wanted| types(&events).iter().filter(|it| **it == wanted).count();
    assert_eq!((count("signal.received"), count("run.resumed")), (3, 1));
    replay(&*bench.log, &"run_1".into()).await.unwrap();
}

/// A hook that sends its run a message while the run is ending.
struct LastWord(Arc<Mutex<Option<Agent>>>);

#[async_trait]
impl Observer for LastWord {
    fn name(&self) -> &str {
        "last-word"
    }
    fn points(&self) -> &[HookPoint] {
        &[HookPoint::RunEnd]
    }
    async fn observe(&self, _: Moment<'_>, context: &HookContext) -> Result<(), BoxError> {
        let agent = self.0.lock().unwrap().clone().unwrap();
        assert!(agent.send_input(&context.run, "ada", "one more thing").await.unwrap());
        Ok(())
    }
}

async fn told_at_its_end(answers: Vec<ScriptedAnswer>) -> (Bench, Agent) {
    let (bench, held) = (Bench::new(), Arc::<Mutex<Option<Agent>>>::default());
    let agent = bench.agent(answers).observer(LastWord(Arc::clone(&held))).build().unwrap();
    *held.lock().unwrap() = Some(agent.clone());
    let (running, request) = (agent.clone(), RunRequest::new("go").run("run_1".into()));
    let _ = on(&bench, async move { running.run(request).await }).await;
    (bench, agent)
}

/// Spec: A1. What was accepted is recorded, or kept for the next writer of the run.
#[tokio::test]
async fn input_accepted_at_the_end_is_not_lost() {
    let (bench, _) = told_at_its_end(vec![says("done")]).await;
    let events = bench.events(&"run_1".into()).await;
    let is_recorded = types(&events).contains(&"signal.received");
    let is_kept = !bench.log.inbox(&"run_1".into()).await.unwrap().is_empty();
    assert!(is_recorded || is_kept);
    replay(&*bench.log, &"run_1".into()).await.unwrap();
}

/// Spec: A1, D12. The next episode reads what its run was told too late.
#[tokio::test]
async fn reopened_run_reads_input_kept_before() {
    let failing = vec![fails(ErrorKind::AuthFailed), says("done")];
    let (bench, agent) = told_at_its_end(failing).await;
    let reopened = on(&bench, async move { agent.reopen(ReopenRequest::new("run_1")).await });
    assert_eq!(reopened.await.unwrap().stop, Stop::Completed);
    let events = bench.events(&"run_1".into()).await;
    assert!(types(&events).contains(&"signal.received"), "{:?}", types(&events));
    replay(&*bench.log, &"run_1".into()).await.unwrap();
}

/// Spec: A1. Both were told that it counts: the record has both, and nothing runs.
#[tokio::test]
async fn decision_accepted_before_a_cancellation_is_recorded() {
    for by_agent in [false, true] {
        let bench = Bench::new();
        waiting_run(&bench).await;
        approve(&bench).await;
        match by_agent {
            true => assert!(payer(&bench).cancel(&"run_1".into(), "ops").await.unwrap()),
            false => {
                assert!(send(&bench, InboxRequest::Cancel { run: "run_1".into() }).await);
                assert_eq!(resumed(&bench).await, Stop::Cancelled);
            }
        }
        let events = bench.events(&"run_1".into()).await;
        let types = types(&events);
        assert!(types.contains(&"approval.granted"), "{types:?}");
        assert!(!types.contains(&"tool.requested"), "{types:?}");
        replay(&*bench.log, &"run_1".into()).await.unwrap();
    }
}
