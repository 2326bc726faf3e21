//! Approvers of child runs that give no decision, and decisions that cannot be written at once.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::{Decision, EventLog, InboxRequest, LogError, RunState};
use backstop_provider::ScriptedAnswer;
use backstop_react::{AgentBuilder, ApprovalRequest, Approver, RunRequest};
use backstop_tool::{ToolError, tool};
use futures_util::future::{Either, select};
use layer0::stop::Stop;
use serde_json::json;

use crate::bench::*;
use crate::intercepted::{Access, InterceptedLog, unreachable};

/// Pays.
#[tool(name = "pay", approval)]
async fn pay() -> Result<String, ToolError> {
    Ok("paid".into())
}

type Decides = fn() -> Option<Decision>;

/// Takes a while, and gives no decision that counts.
struct Undecided(VirtualClock, Decides);

#[async_trait]
impl Approver for Undecided {
    async fn decide(&self, _: &ApprovalRequest) -> Option<Decision> {
        self.0.sleep(Duration::from_secs(1)).await;
        (self.1)()
    }
}

fn root_of_undecided(bench: &Bench, decides: Decides) -> AgentBuilder {
    let child = bench.agent(vec![ScriptedAnswer::calling("pay", json!({})), says("end")]);
    let approver = Undecided(bench.clock.clone(), decides);
    let child = child.name("child").tool(pay).approver(approver).build().unwrap();
    let root = vec![ScriptedAnswer::calling("child", json!({ "input": "x" })), says("root end")];
    bench.agent(root).name("root").tool(child.as_tool("Pays."))
}

async fn check_undecided(how: &str, decides: Decides) {
    let bench = Bench::new();
    let (root, clock) = (root_of_undecided(&bench, decides).build().unwrap(), bench.clock.clone());
    let request = RunRequest::new("go").run("run_root".into());
    let run = on(&bench, async move {
        let an_hour = clock.sleep(Duration::from_secs(3_600));
        match select(Box::pin(root.run(request)), an_hour).await {
            Either::Left((outcome, _)) => Some(outcome),
            Either::Right(_) => None,
        }
    });
    let outcome = run.await.unwrap_or_else(|| panic!("an approver that {how}: it never ends"));
    assert_eq!(outcome.unwrap().stop, Stop::WaitingApproval, "an approver that {how}");
    let open = bench.log.open_approvals().await.unwrap();
    assert_eq!(open.len(), 1, "an approver that {how}: it stays open");
    let root = bench.log.summary(&"run_root".into()).await.unwrap().unwrap();
    assert_eq!(root.state, RunState::WaitingApproval);
}

/// Spec: A1, O2. A run that nothing else can be done for ends as waiting, below another one too.
#[tokio::test]
async fn tree_without_a_decision_ends_waiting() {
    check_undecided("says nothing", || None).await;
    check_undecided("panics", || panic!("no terminal")).await;
    check_undecided("changes arguments to what does not fit", || {
        let arguments = layer0::JsonText::parse("5").unwrap();
        Some(Decision::approve("ops").with_arguments(arguments))
    })
    .await;
}

/// Agrees, and counts how often it is asked.
struct Agrees(Arc<AtomicU32>);

#[async_trait]
impl Approver for Agrees {
    async fn decide(&self, _: &ApprovalRequest) -> Option<Decision> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Some(Decision::approve("ops"))
    }
}

/// Runs an agent whose approver agrees, with a log that answers the first decisions with these errors.
async fn decided_on(errors: Vec<LogError>) -> (Result<Stop, String>, u32) {
    let bench = Bench::new();
    let (errors, asked) = (Mutex::new(errors), Arc::<AtomicU32>::default());
    let log = InterceptedLog::failing(&bench.log, move |access| match access {
        Access::Send(InboxRequest::Decide { .. }) => errors.lock().unwrap().pop(),
        _ => None,
    });
    let agent = bench.agent(vec![ScriptedAnswer::calling("pay", json!({})), says("done")]);
    let agent = agent.shared_log(Arc::new(log) as Arc<dyn EventLog>);
    let agent = agent.tool(pay).approver(Agrees(Arc::clone(&asked)));
    let outcome = bench.run(agent).await;
    let stop = outcome.map(|outcome| outcome.stop).map_err(|error| error.code().to_owned());
    (stop, asked.load(Ordering::SeqCst))
}

/// Spec: A1. A decision is written as patiently as an append, and asked for once.
#[tokio::test]
async fn decision_outlasts_an_unreachable_log() {
    for lost in [1, 5] {
        let errors = || (0..lost).map(|_| unreachable()).collect::<Vec<_>>();
        assert_eq!(decided_on(errors()).await, (Ok(Stop::Completed), 1));
    }
    let locked = vec![LogError::Locked("busy".into())];
    assert_eq!(decided_on(locked).await, (Ok(Stop::Completed), 1));
}

/// Spec: D2
#[tokio::test]
async fn decision_is_not_written_for_ever() {
    let away = (0..1_000).map(|_| unreachable()).collect();
    let (stop, asked) = decided_on(away).await;
    assert_eq!(stop, Err("log.append_failed".to_owned()), "the log is away for minutes");
    assert_eq!(asked, 1);
}
