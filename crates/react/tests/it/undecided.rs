//! Approvers of child runs that give no decision, and decisions that cannot be written at once.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, VirtualClock};
use backstop_event_log::{
    Decision, EventLog, Inbox, InboxRequest, Log, LogError, RunFilter, RunState, Runs,
};
use backstop_provider::ScriptedAnswer;
use backstop_react::{AgentBuilder, ApprovalRequest, Approver, RunOutcome, RunRequest};
use backstop_tool::{ToolContext, ToolError, tool};
use futures_util::future::{Either, select};
use layer0::event::EventKind;
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

/// Asks a person which day it is to be.
#[tool(name = "plan")]
async fn plan(context: &ToolContext) -> Result<String, ToolError> {
    Ok(format!("{:?}", context.ask_person("Which day?", json!({ "type": "object" })).await?))
}

fn root_of_undecided(bench: &Bench, tool: &str, decides: Decides) -> AgentBuilder {
    let child = bench.agent(vec![ScriptedAnswer::calling(tool, json!({})), says("end")]);
    let approver = Undecided(bench.clock.clone(), decides);
    let child = child.name("child").tool(pay).tool(plan).approver(approver).build().unwrap();
    let root = vec![ScriptedAnswer::calling("child", json!({ "input": "x" })), says("root end")];
    bench.agent(root).name("root").tool(child.as_tool("Pays."))
}

/// Runs a root whose child calls this tool, and returns how the root ended.
async fn end_of_undecided(bench: &Bench, tool: &str, how: &str, decides: Decides) -> RunOutcome {
    let root = root_of_undecided(bench, tool, decides).build().unwrap();
    let clock = bench.clock.clone();
    let request = RunRequest::new("go").run("run_root".into());
    let run = on(bench, async move {
        let an_hour = clock.sleep(Duration::from_secs(3_600));
        match select(Box::pin(root.run(request)), an_hour).await {
            Either::Left((outcome, _)) => Some(outcome),
            Either::Right(_) => None,
        }
    });
    run.await.unwrap_or_else(|| panic!("an approver that {how}: it never ends")).unwrap()
}

async fn check_undecided(how: &str, decides: Decides) {
    let bench = Bench::new();
    let outcome = end_of_undecided(&bench, "pay", how, decides).await;
    assert_eq!(outcome.stop, Stop::WaitingApproval, "an approver that {how}");
    let open = bench.log.open_approvals().await.unwrap();
    assert_eq!(open.len(), 1, "an approver that {how}: it stays open");
    let root = bench.log.summary(&"run_root".into()).await.unwrap().unwrap();
    assert_eq!(root.state, RunState::WaitingApproval);
}

const WAYS: [(&str, Decides); 3] = [
    ("says nothing", || None),
    ("panics", || panic!("no terminal")),
    ("gives arguments that do not fit", || {
        let arguments = layer0::JsonText::parse("5").unwrap();
        Some(Decision::approve("ops").with_arguments(arguments))
    }),
];

/// Spec: A1, O2. A run that nothing else can be done for ends as waiting, below another one too.
#[tokio::test]
async fn tree_without_a_decision_ends_waiting() {
    for (how, decides) in WAYS {
        check_undecided(how, decides).await;
    }
}

/// Spec: A3, O2. A call that asks while it runs learns that nobody is there, below another run too.
#[tokio::test]
async fn child_that_asks_nobody_goes_on() {
    for (how, decides) in WAYS {
        let bench = Bench::new();
        let outcome = end_of_undecided(&bench, "plan", how, decides).await;
        assert_eq!((outcome.text(), &outcome.stop), ("root end", &Stop::Completed), "{how}");
        assert!(bench.log.open_approvals().await.unwrap().is_empty(), "{how}");
        let runs = bench.log.runs(RunFilter::new()).await.unwrap();
        let child = runs.into_iter().find(|run| &*run.agent == "child").unwrap();
        let events = bench.events(&child.run).await;
        let answer = events.iter().find_map(|event| match &event.kind {
            EventKind::ToolResponded(answer) => Some(answer.output.display_text().into_owned()),
            _ => None,
        });
        assert_eq!(answer.as_deref(), Some("NobodyThere"), "{how}");
    }
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
