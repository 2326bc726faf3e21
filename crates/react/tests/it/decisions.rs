//! Decisions of people, made in several places: one counts, and it is the stored one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use backstop_event_log::{Decision, EventLog, Inbox, MemoryLog};
use backstop_provider::ScriptedProvider;
use backstop_react::{Agent, ApprovalDesk, RunRequest, replay};
use backstop_tool::{ToolError, tool};
use layer0::Timestamp;
use layer0::event::EventKind;
use layer0::id::ApprovalId;
use layer0::stop::Stop;
use serde_json::json;

use crate::bench::{call, calls, says};

static PAID: AtomicUsize = AtomicUsize::new(0);

/// Pays.
#[tool(approval)]
async fn transfer() -> Result<&'static str, ToolError> {
    PAID.fetch_add(1, Ordering::SeqCst);
    Ok("paid")
}

/// Signs.
#[tool(approval)]
async fn sign(page: u32) -> Result<String, ToolError> {
    Ok(format!("signed page {page}"))
}

fn agent(
    log: &Arc<MemoryLog>,
    answers: Vec<backstop_provider::ScriptedAnswer>,
) -> backstop_react::AgentBuilder {
    let log = Arc::clone(log) as Arc<dyn EventLog>;
    Agent::builder(ScriptedProvider::new(answers)).tool(transfer).tool(sign).shared_log(log)
}

async fn asked(desk: &ApprovalDesk, count: usize) -> Vec<ApprovalId> {
    for _ in 0..1_000_000 {
        let open = desk.open();
        if open.len() == count {
            return open.into_iter().map(|open| open.approval.id).collect();
        }
        tokio::task::yield_now().await;
    }
    panic!("the desk has {} approvals, not {count}", desk.open().len());
}

/// Spec: A1
#[tokio::test]
async fn a_denial_that_was_accepted_is_never_overruled() {
    let log = Arc::new(MemoryLog::new());
    let desk = ApprovalDesk::default();
    let answers = vec![calls([call("c1", "transfer", json!({}))]), says("done")];
    let agent = agent(&log, answers).approver(desk.clone()).build().unwrap();
    let running = tokio::spawn(async move { agent.run("pay").await });
    let id = asked(&desk, 1).await.remove(0);
    let no = Decision::deny("ops", "no");
    assert!(log.decide(&id, no, Timestamp::default()).await.unwrap());
    // The desk does not have it yet, or the approval is withdrawn already: the tool does not run in either case.
    let _ = desk.approve(&id, "ada");
    let outcome = running.await.unwrap().unwrap();
    assert_eq!(outcome.stop, Stop::Completed);
    assert_eq!(PAID.load(Ordering::SeqCst), 0, "it was denied");
    let (_, events) = backstop_event_log::read_events(&*log, &outcome.run_id).await.unwrap();
    let denied = events.iter().find_map(|event| match &event.kind {
        EventKind::ApprovalDenied(denied) => Some(Arc::clone(&denied.by)),
        _ => None,
    });
    assert_eq!(denied.as_deref(), Some("ops"));
    assert!(replay(&*log, &outcome.run_id).await.is_ok());
}

/// Spec: A1
#[tokio::test]
async fn an_approval_decided_elsewhere_leaves_the_desk() {
    let log = Arc::new(MemoryLog::new());
    let desk = ApprovalDesk::default();
    let answers = vec![
        calls([call("c1", "sign", json!({"page": 1})), call("c2", "sign", json!({"page": 2}))]),
        says("done"),
    ];
    let agent = agent(&log, answers).approver(desk.clone()).build().unwrap();
    let running = tokio::spawn(async move { agent.run("sign").await });
    let both = asked(&desk, 2).await;
    assert!(log.decide(&both[0], Decision::approve("ops"), Timestamp::default()).await.unwrap());
    assert_eq!(asked(&desk, 1).await, both[1..], "the other one is still asked for");
    desk.approve(&both[1], "ada").unwrap();
    assert_eq!(running.await.unwrap().unwrap().stop, Stop::Completed);
}

/// Spec: A1, D5
#[tokio::test]
async fn a_resumed_run_asks_for_what_is_left() {
    let log = Arc::new(MemoryLog::new());
    let answers = vec![
        calls([call("c1", "sign", json!({"page": 1})), call("c2", "sign", json!({"page": 2}))]),
        says("done"),
    ];
    let alone = agent(&log, answers).build().unwrap();
    let waiting = alone.run(RunRequest::new("sign")).await.unwrap();
    assert_eq!(waiting.stop, Stop::WaitingApproval);
    let ids: Vec<_> = waiting.approvals.iter().map(|approval| approval.id.clone()).collect();
    alone.approve(&ids[1], "ops").await.unwrap();
    let refused = alone.deny(&ids[1], "ada", "no").await;
    assert!(refused.is_err(), "an approval is decided once");
    let desk = ApprovalDesk::default();
    let attended = agent(&log, vec![says("done")]).approver(desk.clone()).build().unwrap();
    let run = waiting.run_id.clone();
    let running = tokio::spawn(async move { attended.resume(run).await });
    assert_eq!(asked(&desk, 1).await, ids[..1]);
    desk.approve(&ids[0], "ada").unwrap();
    assert_eq!(running.await.unwrap().unwrap().stop, Stop::Completed);
}

/// Spec: A1
#[tokio::test]
async fn input_from_outside_reaches_the_model_once() {
    let log = Arc::new(MemoryLog::new());
    let desk = ApprovalDesk::default();
    let answers = vec![calls([call("c1", "sign", json!({"page": 1}))]), says("done")];
    let agent = agent(&log, answers).approver(desk.clone()).build().unwrap();
    let (teller, run) = (agent.clone(), layer0::id::RunId::from("run_told"));
    let request = RunRequest::new("sign").run(run.clone());
    let running = tokio::spawn(async move { agent.run(request).await });
    let id = asked(&desk, 1).await.remove(0);
    assert!(teller.send_input(&run, "ops", "in blue").await.unwrap());
    assert!(teller.send_input(&run, "ops", "and soon").await.unwrap());
    desk.approve(&id, "ada").unwrap();
    let outcome = running.await.unwrap().unwrap();
    let said = serde_json::to_string(&outcome.transcript).unwrap();
    assert_eq!(
        (said.matches("in blue").count(), said.matches("and soon").count()),
        (1, 1),
        "{said}"
    );
    assert!(!teller.send_input(&run, "ops", "too late").await.unwrap(), "the run is over");
    assert!(replay(&*log, &run).await.is_ok());
}
