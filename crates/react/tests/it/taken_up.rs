//! Child runs that a caller resumes after a death, and those that continue without their caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::{Batch, Decision, EventLog, Log, RunFilter, Runs};
use backstop_provider::{ErrorKind, ScriptedProvider};
use backstop_react::{
    Agent, AgentBuilder, ApprovalRequest, Approver, Budget, ReopenRequest, ResumeRequest,
    RunRequest, replay,
};
use backstop_tool::{ToolError, tool};
use layer0::event::{EventKind, OperatorReturned};
use layer0::id::RunId;
use layer0::stop::Stop;

use crate::bench::*;
use crate::record::FailingLog;
use crate::tape::Tape;
use crate::tree::calling;

fn agent(bench: &Bench, tape: &Arc<Tape>, name: &str, answers: ScriptedProvider) -> AgentBuilder {
    let agent = Agent::builder(answers).clock(Arc::new(bench.clock.clone())).name(name);
    agent.shared_log(Arc::clone(tape) as Arc<dyn EventLog>)
}

async fn kinds(tape: &Tape, run: &RunId) -> Vec<EventKind> {
    let events = backstop_event_log::read_events(tape, run).await.unwrap().1;
    events.into_iter().map(|event| event.kind).collect()
}

async fn returned(tape: &Tape, run: &str) -> OperatorReturned {
    let kinds = kinds(tape, &run.into()).await;
    let mut returned = kinds.into_iter().filter_map(|kind| match kind {
        EventKind::OperatorReturned(returned) => Some(returned),
        _ => None,
    });
    returned.next().unwrap()
}

/// Returns the number of appends before the first one with an event of this type.
fn before(batches: &[Batch], event: &str) -> usize {
    let has = |batch: &Batch| batch.records.iter().any(|record| record.event_type == event);
    batches.iter().position(has).unwrap()
}

/// Spec: O3, B2. What a run below had used that failed counts, though its caller died before it heard of it.
#[tokio::test]
async fn usage_of_a_failed_run_outlives_its_caller() {
    let bench = Bench::new();
    let build = |tape: &Arc<Tape>| {
        let failing = ScriptedProvider::new(vec![fails(ErrorKind::AuthFailed)]);
        let clerk = agent(&bench, tape, "clerk", failing).build().unwrap();
        let lead = agent(&bench, tape, "lead", calling(&[("clerk", "go")]));
        lead.tool(clerk.as_tool("Helps.")).build().unwrap()
    };
    let tape = Arc::new(Tape::default());
    let lead = build(&tape);
    let request = RunRequest::new("go").run("run_lead".into());
    let undisturbed = on(&bench, async move { lead.run(request).await }).await.unwrap();
    let expected = returned(&tape, "run_lead").await.usage;
    assert!(expected.model_attempts > 0);

    let batches = tape.batches();
    let tape = Tape::after(&batches[..before(&batches, "operator.returned")]).await;
    let lead = build(&tape);
    let resumed = on(&bench, async move { lead.resume("run_lead").await }).await.unwrap();
    assert_eq!(returned(&tape, "run_lead").await.usage.model_attempts, expected.model_attempts);
    // The answer that was being waited for when the process died is none.
    assert_eq!(resumed.usage.model_attempts, undisturbed.usage.model_attempts);
    replay(&*tape, &"run_lead".into()).await.unwrap();
}

/// Agrees, and counts how often it is asked.
struct Counting(Arc<AtomicU32>, VirtualClock);

#[async_trait]
impl Approver for Counting {
    async fn decide(&self, _: &ApprovalRequest) -> Option<Decision> {
        self.0.fetch_add(1, Ordering::SeqCst);
        self.1.sleep(Duration::from_secs(1)).await;
        Some(Decision::approve("ops"))
    }
}

/// Looks.
#[tool(idempotent)]
async fn look(n: Option<u32>) -> Result<String, ToolError> {
    let _ = n;
    Ok("seen".into())
}

/// Sends.
#[tool]
async fn send() -> Result<String, ToolError> {
    Ok("sent".into())
}

/// Pays.
#[tool]
async fn pay() -> Result<String, ToolError> {
    Ok("paid".into())
}

/// Spec: A1, D5. An approval that is all a resumed run waits for is asked once.
#[tokio::test]
async fn resumed_run_asks_an_approver_once() {
    let bench = Bench::new();
    let calls = &[("send", ""), ("pay", "")];
    let build = |tape: &Arc<Tape>, asked: &Arc<AtomicU32>| {
        let agent = agent(&bench, tape, "lead", calling(calls)).tool(send).tool(pay);
        agent
            .require_approval("pay")
            .approver(Counting(Arc::clone(asked), bench.clock.clone()))
            .build()
            .unwrap()
    };
    let (tape, asked) = (Arc::new(Tape::default()), Arc::<AtomicU32>::default());
    let lead = build(&tape, &asked);
    let request = RunRequest::new("go").run("run_lead".into());
    on(&bench, async move { lead.run(request).await }).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 1);

    let batches = tape.batches();
    let first = before(&batches, "tool.responded").min(before(&batches, "approval.granted"));
    let (tape, asked) = (Tape::after(&batches[..first]).await, Arc::<AtomicU32>::default());
    let lead = build(&tape, &asked);
    let resumed = on(&bench, async move { lead.resume("run_lead").await }).await.unwrap();
    assert_eq!((resumed.stop, asked.load(Ordering::SeqCst)), (Stop::Completed, 1));
}

/// Spec: D12. A run below whose caller has ended has a budget of its own when it is reopened.
#[tokio::test]
async fn reopened_run_has_what_its_caller_kept() {
    let bench = Bench::new();
    let tape = Arc::new(Tape::default());
    let asks = |n: usize| calls([call(&format!("c{n}"), "look", serde_json::json!({ "n": n }))]);
    let answers: Vec<_> = (0..6).map(asks).chain([says("done")]).collect();
    let clerk = agent(&bench, &tape, "clerk", ScriptedProvider::new(answers)).tool(look);
    let clerk = clerk.build().unwrap();
    let lead = agent(&bench, &tape, "lead", calling(&[("clerk", "go")]));
    let lead = lead.budget(Budget::new().model_calls(4)).tool(clerk.as_tool("Helps."));
    let lead = lead.build().unwrap();
    let ended = on(&bench, async move { lead.run("go").await }).await.unwrap();
    let child = returned(&tape, ended.run_id.as_str()).await;
    assert_eq!(child.reason.as_ref().map(layer0::Code::as_str), Some("budget.model_calls"));

    let reopened = ReopenRequest::new(child.run.clone());
    let done = on(&bench, async move { clerk.reopen(reopened).await }).await.unwrap();
    assert_eq!((&done.stop, done.text()), (&Stop::Completed, "done"));
    replay(&*tape, &child.run).await.unwrap();
}

/// Spec: D5, O2. A call whose tool is gone is answered, and what it dispatched is ended.
#[tokio::test]
async fn dispatch_of_a_vanished_tool_is_ended() {
    let bench = Bench::new();
    let build = |tape: &Arc<Tape>, has_tool: bool| {
        let clerk = agent(&bench, tape, "clerk", calling(&[("look", "")])).tool(look);
        let lead = agent(&bench, tape, "lead", calling(&[("clerk", "go")])).tool(pay);
        let lead =
            if has_tool { lead.tool(clerk.build().unwrap().as_tool("Helps.")) } else { lead };
        lead.build().unwrap()
    };
    let tape = Arc::new(Tape::default());
    let lead = build(&tape, true);
    let request = RunRequest::new("go").run("run_lead".into());
    on(&bench, async move { lead.run(request).await }).await.unwrap();

    let batches = tape.batches();
    let tape = Tape::after(&batches[..=before(&batches, "operator.dispatched") + 2]).await;
    let lead = build(&tape, false);
    let request = ResumeRequest::new("run_lead").allow_other_agent();
    let resumed = on(&bench, async move { lead.resume(request).await }).await.unwrap();
    assert_eq!(resumed.stop, Stop::Completed);
    let answers: Vec<_> = kinds(&tape, &"run_lead".into())
        .await
        .into_iter()
        .filter_map(|kind| match kind {
            EventKind::ToolResponded(answer) => Some(answer.error.unwrap().reason.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(answers, ["tool.interrupted"], "it had begun");
    let child = returned(&tape, "run_lead").await.run;
    assert!(!tape.summary(&child).await.unwrap().unwrap().is_open());
}

/// Spec: O2, O3. A run below that could not write its end is ended before its caller hears of it.
#[tokio::test]
async fn run_below_whose_log_failed_is_ended() {
    let bench = Bench::new();
    let failed = AtomicU32::new(0);
    let fails = move |batch: &Batch| {
        let is_third = &*batch.summary.agent == "clerk" && batch.records[0].seq > 4;
        is_third && failed.fetch_add(1, Ordering::SeqCst) == 0
    };
    let log: Arc<dyn EventLog> = Arc::new(FailingLog(Arc::clone(&bench.log), Box::new(fails)));
    let agent = |name: &str, calls| {
        let agent = Agent::builder(calling(calls)).clock(Arc::new(bench.clock.clone()));
        agent.name(name).shared_log(Arc::clone(&log))
    };
    let clerk = agent("clerk", &[("look", "")]).tool(look).build().unwrap();
    let lead = agent("lead", &[("clerk", "go")]).tool(clerk.as_tool("Helps.")).build().unwrap();
    let ended = on(&bench, async move { lead.run("go").await }).await.unwrap();
    assert_eq!(ended.stop, Stop::Completed);
    for run in bench.log.runs(RunFilter::new()).await.unwrap() {
        assert!(!run.is_open(), "{} is {:?}", run.agent, run.state);
        replay(&*bench.log, &run.run).await.unwrap();
    }
}
