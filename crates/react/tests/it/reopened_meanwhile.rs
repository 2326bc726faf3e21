//! A run that is reopened by another process between a look at it and the fold of its record.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use backstop_event_log::{EventLog, LogError, MemoryLog, RunState};
use backstop_provider::{ErrorKind, ScriptedAnswer, ScriptedProvider};
use backstop_react::{Agent, AgentBuilder, ReopenRequest, ResumeError, RunRequest};
use backstop_tool::{State, ToolError, tool};
use futures_util::future::BoxFuture;
use layer0::stop::Stop;
use serde_json::json;
use tokio::sync::Notify;

use crate::bench::{call, calls, fails, says};
use crate::intercepted::{Access, InterceptedLog};

/// The number of payments, and the notification of each.
#[derive(Clone, Default)]
struct Ledger(Arc<AtomicU32>, Arc<Notify>);

/// Pays, and is not done with it.
#[tool]
async fn pay(ledger: State<Ledger>) -> Result<String, ToolError> {
    ledger.0.fetch_add(1, Ordering::SeqCst);
    ledger.1.notify_one();
    std::future::pending().await
}

fn payer(answers: Vec<ScriptedAnswer>, ledger: &Ledger) -> AgentBuilder {
    let provider = ScriptedProvider::new(answers);
    Agent::builder(provider).name("payer").tool(pay).state(ledger.clone())
}

/// Does something once, at the second look at a run.
fn meanwhile(
    log: &Arc<MemoryLog>,
    act: impl FnOnce() -> BoxFuture<'static, ()> + Send + 'static,
) -> InterceptedLog {
    let (looks, act) = (AtomicU32::new(0), Mutex::new(Some(act)));
    InterceptedLog::new(log, move |access| {
        let is_look = matches!(access, Access::Summary);
        let second = is_look && looks.fetch_add(1, Ordering::SeqCst) == 1;
        let act = second.then(|| act.lock().unwrap().take()).flatten();
        Box::pin(async {
            if let Some(act) = act {
                act().await;
            }
            Ok(())
        })
    })
}

async fn failed(log: &Arc<MemoryLog>, ledger: &Ledger) {
    let agent = payer(vec![fails(ErrorKind::AuthFailed)], ledger);
    let agent = agent.shared_log(Arc::clone(log) as Arc<dyn EventLog>).build().unwrap();
    agent.run(RunRequest::new("pay it").run("run_1".into())).await.unwrap_err();
}

fn pays() -> Vec<ScriptedAnswer> {
    vec![calls([call("c1", "pay", json!({}))]), says("done")]
}

/// Spec: D8
#[tokio::test]
async fn resume_leaves_a_reopened_run_to_its_owner() {
    let (log, ledger) = (Arc::default(), Ledger::default());
    failed(&log, &ledger).await;
    let owner = payer(pays(), &ledger).shared_log(Arc::clone(&log) as Arc<dyn EventLog>);
    let (owner, paid) = (owner.build().unwrap(), Arc::clone(&ledger.1));
    let between = meanwhile(&log, move || {
        Box::pin(async move {
            tokio::spawn(async move { owner.reopen(ReopenRequest::new("run_1")).await });
            paid.notified().await;
        })
    });
    let late = payer(pays(), &ledger).log(between).build().unwrap();
    let refused = late.resume("run_1").await.unwrap_err();
    assert!(matches!(refused, ResumeError::Log(LogError::Claimed(_))), "{refused:?}");
    assert_eq!(ledger.0.load(Ordering::SeqCst), 1, "only its owner pays");
}

/// Spec: D8, D12. Another process reopened the run, and left it to a person, before the claim.
#[tokio::test]
async fn reopen_leaves_a_reopened_run_to_its_owner() {
    let (log, ledger) = (Arc::default(), Ledger::default());
    let asking = |answers| payer(answers, &ledger).require_approval("pay");
    let failing = asking(vec![fails(ErrorKind::AuthFailed)]);
    let failing = failing.shared_log(Arc::clone(&log) as Arc<dyn EventLog>).build().unwrap();
    failing.run(RunRequest::new("pay it").run("run_1".into())).await.unwrap_err();
    let owner = asking(pays()).shared_log(Arc::clone(&log) as Arc<dyn EventLog>).build().unwrap();
    let owner = Mutex::new(Some(owner));
    let between = InterceptedLog::new(&log, move |access| {
        let is_claim = matches!(access, Access::Claim);
        let owner = is_claim.then(|| owner.lock().unwrap().take()).flatten();
        Box::pin(async move {
            if let Some(owner) = owner {
                let outcome = owner.reopen(ReopenRequest::new("run_1")).await.unwrap();
                assert_eq!(outcome.stop, Stop::WaitingApproval);
            }
            Ok(())
        })
    });
    let late = asking(pays()).log(between).build().unwrap();
    let refused = late.reopen(ReopenRequest::new("run_1")).await.unwrap_err();
    let is_open = matches!(&refused, ResumeError::Open { state: RunState::WaitingApproval, .. });
    assert!(is_open, "{refused:?}");
}
