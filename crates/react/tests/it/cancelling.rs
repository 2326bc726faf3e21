//! Requests to stop a run that meet something else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use backstop_event_log::{
    Decision, EventLog, Inbox, InboxMessage, InboxRequest, InboxWatch, Log, LogError, MemoryLog,
    OpenApproval, Ports, RunWriter, read_events,
};
use backstop_provider::{ModelRequest, ModelResponse, Provider, ProviderError, ScriptedProvider};
use backstop_react::{Agent, ApprovalRequest, Approver, Budget, Limits, RunRequest};
use backstop_tool::{State, ToolContext, ToolError, tool};
use layer0::Timestamp;
use layer0::event::EventKind;
use layer0::id::RunId;
use layer0::stop::Stop;
use serde_json::json;

use crate::bench::*;

/// Wipes, which nothing in this file wants.
#[tool(approval)]
async fn wipe() -> Result<String, ToolError> {
    panic!("it ran")
}

/// Approves, and has the run stopped just before.
struct StopsAndApproves(Arc<MemoryLog>);

#[async_trait]
impl Approver for StopsAndApproves {
    async fn decide(&self, request: &ApprovalRequest) -> Option<Decision> {
        let cancel = InboxRequest::Cancel { run: request.run.clone() };
        assert!(self.0.send(cancel, "ops", Timestamp::default()).await.unwrap());
        Some(Decision::approve("here"))
    }
}

/// Spec: A1. A request to stop that is read beside a decision is carried out.
#[tokio::test]
async fn a_cancellation_beside_a_decision_counts() {
    let log = Arc::new(MemoryLog::new());
    let answers = vec![calls([call("c1", "wipe", json!({}))]), says("done")];
    let agent = Agent::builder(ScriptedProvider::new(answers))
        .tool(wipe)
        .approver(StopsAndApproves(Arc::clone(&log)))
        .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
        .build()
        .unwrap();
    let outcome = agent.run("go").await.unwrap();
    assert_eq!(outcome.stop, Stop::Cancelled);
    let (_, events) = read_events(&*log, &outcome.run_id).await.unwrap();
    assert!(!events.iter().any(|event| matches!(event.kind, EventKind::ToolRequested(_))));
}

/// Counts how often it is asked.
struct Counted(Arc<AtomicUsize>);

#[async_trait]
impl Provider for Counted {
    fn name(&self) -> &str {
        "counted"
    }

    fn model(&self) -> &str {
        "m"
    }

    async fn complete(&self, _: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        std::future::pending().await
    }
}

/// A log whose inbox answers after so many turns of the executor, as that of another process does.
struct Slow(MemoryLog, usize);

impl EventLog for Slow {
    fn ports(&self) -> Ports<'_> {
        self.0.ports().inbox(self)
    }
}

#[async_trait]
impl Inbox for Slow {
    async fn open_approvals(&self) -> Result<Vec<OpenApproval>, LogError> {
        self.0.open_approvals().await
    }
    async fn send(&self, request: InboxRequest, by: &str, at: Timestamp) -> Result<bool, LogError> {
        self.0.send(request, by, at).await
    }
    async fn inbox(&self, run: &RunId) -> Result<Vec<InboxMessage>, LogError> {
        for _ in 0..self.1 {
            tokio::task::yield_now().await;
        }
        self.0.inbox(run).await
    }
    fn watch_inbox(&self, run: &RunId) -> InboxWatch {
        self.0.watch_inbox(run)
    }
}

/// Spec: A1, D5. A request to stop that a process left unread when it died comes before anything is
/// asked again.
#[tokio::test]
async fn a_resumed_run_hears_first_that_it_stops() {
    let asked = Arc::new(AtomicUsize::new(0));
    let log = Arc::new(Slow(MemoryLog::new(), 1));
    let agent = |log: Arc<dyn EventLog>| {
        Agent::builder(Counted(Arc::clone(&asked))).shared_log(log).build().unwrap()
    };
    let run = RunId::from("run_dead");
    let died = Arc::new(MemoryLog::new());
    let first = agent(Arc::clone(&died) as Arc<dyn EventLog>);
    let mut running = Box::pin(first.run(RunRequest::new("go").run(run.clone())));
    while asked.load(Ordering::Relaxed) == 0 {
        assert!(futures_util::poll!(&mut running).is_pending());
        tokio::task::yield_now().await;
    }
    let (_, events) = read_events(&*died, &run).await.unwrap();
    let records = died.records(&run, 1).await.unwrap();
    let shared = Arc::clone(&log) as Arc<dyn EventLog>;
    RunWriter::copy(shared, run.clone(), &events, records).commit().await.unwrap();
    let cancel = InboxRequest::Cancel { run: run.clone() };
    assert!(log.send(cancel, "ops", Timestamp::default()).await.unwrap());
    let outcome = agent(log).resume(run).await.unwrap();
    assert_eq!(outcome.stop, Stop::Cancelled);
    assert_eq!(asked.load(Ordering::Relaxed), 1, "only before it died");
}

/// Has its run stopped from outside.
#[tool(idempotent, exploratory)]
async fn stops(
    turn: usize,
    log: State<Arc<Slow>>,
    context: &ToolContext,
) -> Result<usize, ToolError> {
    let cancel = InboxRequest::Cancel { run: context.run.clone() };
    if turn == 0 {
        assert!(log.send(cancel, "ops", Timestamp::default()).await.unwrap());
    }
    Ok(turn)
}

/// Spec: A1. Reading the inbox takes longer than a step, and is not begun anew at each of them.
#[tokio::test]
async fn quick_steps_leave_no_request_unheard() {
    const TURNS: usize = 200;
    let log = Arc::new(Slow(MemoryLog::new(), 60));
    let turn = |turn: usize| calls([call(&format!("c{turn}"), "stops", json!({ "turn": turn }))]);
    let answers = (0..TURNS).map(turn).chain([says("done")]).collect::<Vec<_>>();
    let agent = Agent::builder(ScriptedProvider::new(answers))
        .tool(stops)
        .state(Arc::clone(&log))
        .limits(Limits::new().max_iterations(u32::MAX))
        .budget(Budget::new().model_calls(None).tool_calls(None))
        .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
        .build()
        .unwrap();
    let outcome = agent.run("go").await.unwrap();
    assert_eq!(outcome.stop, Stop::Cancelled);
}
