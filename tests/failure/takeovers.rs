//! Runs that another process takes over between what is recorded and what follows from it.

use std::sync::Arc;

use backstop::layer0::error::{BoxError, OperatorError};
use backstop::layer0::message::Message;
use backstop::layer0::operator::{Answer, Context, Task};
use backstop::provider::ScriptedToolCall;
use backstop::store_postgres::Options;
use backstop::{
    Agent, AgentBuilder, ApprovalRequest, Approver, Database, Decision, Durability, EventLog,
    HookContext, HookPoint, LocalOrchestrator, Moment, Observer, Operator, Orchestrator, Parallel,
    PostgresDatabase, ResumeRequest, RunRequest, ScriptedAnswer, ScriptedProvider, Sequence,
    ToolContext, ToolError, Workflow, tool,
};
use backstop_testkit::contract::{ActingRun, Ledger, TwoProcesses, takeovers};
use backstop_testkit::{PostgresServer, Relay};
use serde_json::json;

const RUN: &str = "run_1";
/// The acts that are not to be repeated.
const ONCE: [&str; 3] = ["pay", "sign", "wipe"];

fn note(context: &ToolContext, act: &str) -> Result<String, ToolError> {
    let ledger: &Ledger = context.state().expect("the agent has a ledger");
    ledger.act(act);
    Ok(format!("{act}: done"))
}

/// Pays a bill.
#[tool]
async fn pay(context: &ToolContext) -> Result<String, ToolError> {
    note(context, "pay")
}

/// Signs a contract.
#[tool(approval)]
async fn sign(context: &ToolContext) -> Result<String, ToolError> {
    note(context, "sign")
}

/// Wipes a disk.
#[tool]
async fn wipe(context: &ToolContext) -> Result<String, ToolError> {
    note(context, "wipe")
}

/// Looks something up.
#[tool(idempotent)]
async fn look(context: &ToolContext) -> Result<String, ToolError> {
    note(context, "look")
}

/// Returns an agent that calls tools in turns, each turn's tools at once.
fn agent(
    name: &'static str,
    turns: &'static [&'static [&'static str]],
    log: &Arc<dyn EventLog>,
    ledger: &Ledger,
) -> AgentBuilder {
    let asked = ledger.clone();
    let model = ScriptedProvider::from_fn(move |request| {
        asked.act(format!("{name} asks its model"));
        let messages = request.messages.messages();
        let turn = messages.iter().filter(|it| matches!(***it, Message::Assistant { .. })).count();
        let Some(tools) = turns.get(turn) else { return ScriptedAnswer::saying("done") };
        let calls = tools.iter().map(|tool| {
            ScriptedToolCall::new(format!("{tool}-{turn}"), *tool, json!({"input": "x"}))
        });
        ScriptedAnswer::default().tool_calls(calls)
    });
    Agent::builder(model)
        .name(name)
        .state(ledger.clone())
        .shared_log(Arc::clone(log))
        .observer(Meter(ledger.clone()))
        .approver(Agrees(ledger.clone()))
}

/// An observer whose calls count as acts.
struct Meter(Ledger);

#[async_trait::async_trait]
impl Observer for Meter {
    fn name(&self) -> &str {
        "meter"
    }
    fn points(&self) -> &[HookPoint] {
        &[HookPoint::BeforeModel, HookPoint::BeforeTool, HookPoint::AfterTool]
    }
    async fn observe(&self, _: Moment<'_>, _: &HookContext) -> Result<(), BoxError> {
        self.0.act("observe");
        Ok(())
    }
}

struct Agrees(Ledger);

#[async_trait::async_trait]
impl Approver for Agrees {
    async fn decide(&self, _: &ApprovalRequest) -> Option<Decision> {
        self.0.act("approve");
        Some(Decision::approve("ops"))
    }
}

/// An agent with tools, an approval, hooks, and an agent as a tool.
struct Tree;

impl Tree {
    fn agent(log: &Arc<dyn EventLog>, ledger: &Ledger) -> Agent {
        let clerk = agent("clerk", &[&["wipe"]], log, ledger).tool(wipe).build().unwrap();
        agent("root", &[&["pay", "look"], &["sign"], &["clerk"]], log, ledger)
            .tool(pay)
            .tool(look)
            .tool(sign)
            .tool(clerk.as_tool("Cleans up."))
            .build()
            .unwrap()
    }
}

#[async_trait::async_trait]
impl ActingRun for Tree {
    async fn begin(&self, log: Arc<dyn EventLog>, ledger: Ledger) -> Result<String, String> {
        let request = RunRequest::new("go").run(RUN.into());
        let outcome = Self::agent(&log, &ledger).run(request).await;
        outcome.map(|it| it.text().to_owned()).map_err(|error| error.to_string())
    }
    async fn resume(&self, log: Arc<dyn EventLog>, ledger: Ledger) -> Result<String, String> {
        let outcome = Self::agent(&log, &ledger).resume(ResumeRequest::new(RUN)).await;
        outcome.map(|it| it.text().to_owned()).map_err(|error| error.to_string())
    }
}

/// An operator without a record, whose runs count as acts.
struct Plain(&'static str, Ledger);

#[async_trait::async_trait]
impl Operator for Plain {
    fn name(&self) -> &str {
        self.0
    }
    async fn run(&self, _: Task, _: &Context) -> Result<Answer, OperatorError> {
        self.1.act(self.0);
        Ok(Answer::from_output("done".into()))
    }
}

/// A workflow with steps side by side, of which two keep records.
struct Flow;

impl Flow {
    fn orchestrator(log: &Arc<dyn EventLog>, ledger: &Ledger) -> LocalOrchestrator {
        let payer = agent("payer", &[&["pay"]], log, ledger).tool(pay).build().unwrap();
        let cleaner = agent("cleaner", &[&["wipe"]], log, ledger).tool(wipe).build().unwrap();
        let both = Parallel::new("both", ["payer", "sign"]);
        let all = Sequence::new("all", ["both", "cleaner"]);
        LocalOrchestrator::builder()
            .operator(payer)
            .operator(cleaner)
            .operator(Plain("sign", ledger.clone()))
            .operator(Workflow::new(both, Arc::clone(log)))
            .operator(Workflow::new(all, Arc::clone(log)))
            .build()
            .unwrap()
    }
}

#[async_trait::async_trait]
impl ActingRun for Flow {
    async fn begin(&self, log: Arc<dyn EventLog>, ledger: Ledger) -> Result<String, String> {
        let mut context = Context::root();
        context.run = Some(RUN.into());
        let flow = Self::orchestrator(&log, &ledger);
        let answer = flow.dispatch("all", Task::text("go"), context).await;
        answer.map(|it| it.output.to_string()).map_err(|error| error.to_string())
    }
    async fn resume(&self, log: Arc<dyn EventLog>, ledger: Ledger) -> Result<String, String> {
        let answer = Self::orchestrator(&log, &ledger).resume("all", RUN.into()).await;
        // A step that may have acted ends the workflow; its record is closed.
        Ok(answer.map_or_else(|error| error.to_string(), |it| it.output.to_string()))
    }
}

/// Two processes that share a file; the first loses the file that shows that it lives.
struct SharedFile {
    folder: tempfile::TempDir,
    first: Database,
    second: Database,
}

impl SharedFile {
    async fn open() -> Arc<dyn TwoProcesses> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("runs.db");
        let first = Database::open(&file, Durability::Normal).await.unwrap();
        let second = Database::open(&file, Durability::Normal).await.unwrap();
        Arc::new(Self { folder, first, second })
    }
}

#[async_trait::async_trait]
impl TwoProcesses for SharedFile {
    fn first(&self) -> Arc<dyn EventLog> {
        Arc::new(self.first.log())
    }
    fn second(&self) -> Arc<dyn EventLog> {
        Arc::new(self.second.log())
    }
    async fn cut_off(&self) {
        // The second process makes its own when it claims the run.
        let files = std::fs::read_dir(self.folder.path()).unwrap().map(|it| it.unwrap().path());
        let owners = files.filter(|file| file.to_string_lossy().contains("-owner-"));
        owners.for_each(|file| std::fs::remove_file(file).unwrap());
    }
    async fn let_back(&self) {}
}

/// Two processes at a server; the first one's connections are cut.
struct SharedServer {
    relay: Relay,
    first: PostgresDatabase,
    second: PostgresDatabase,
}

impl SharedServer {
    async fn open(server: &PostgresServer) -> Arc<dyn TwoProcesses> {
        let url = server.database().await;
        let host = url.split('@').nth(1).unwrap().split('/').next().unwrap();
        let relay = Relay::start(host);
        let near = url.replace(host, &relay.address().to_string());
        let open = async |url: &str| {
            let options = Options::new(url).unwrap().connections(3);
            PostgresDatabase::connect_with(options).await.unwrap()
        };
        let (first, second) = (open(&near).await, open(&url).await);
        Arc::new(Self { relay, first, second })
    }
}

#[async_trait::async_trait]
impl TwoProcesses for SharedServer {
    fn first(&self) -> Arc<dyn EventLog> {
        Arc::new(self.first.log())
    }
    fn second(&self) -> Arc<dyn EventLog> {
        Arc::new(self.second.log())
    }
    async fn cut_off(&self) {
        self.relay.cut();
    }
    async fn let_back(&self) {
        self.relay.mend();
    }
}

/// Spec: D8
#[tokio::test(flavor = "multi_thread")]
async fn taken_over_agents_act_no_more_sqlite() {
    let times = takeovers(SharedFile::open, Arc::new(Tree), &ONCE).await;
    assert!(times > 15, "{times} appends");
}

/// Spec: D8, O6
#[tokio::test(flavor = "multi_thread")]
async fn taken_over_workflows_act_no_more_sqlite() {
    let times = takeovers(SharedFile::open, Arc::new(Flow), &ONCE).await;
    assert!(times > 15, "{times} appends");
}

/// Spec: J2
#[tokio::test(flavor = "multi_thread")]
async fn taken_over_agents_act_no_more_postgres() {
    let Some(server) = PostgresServer::shared() else { return };
    takeovers(|| SharedServer::open(server), Arc::new(Tree), &ONCE).await;
}

/// Spec: J2, O6
#[tokio::test(flavor = "multi_thread")]
async fn taken_over_workflows_act_no_more_postgres() {
    let Some(server) = PostgresServer::shared() else { return };
    takeovers(|| SharedServer::open(server), Arc::new(Flow), &ONCE).await;
}
