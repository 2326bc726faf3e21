//! An agent in a process that kills itself (`kill -9`) around an append, for the tests of resume.
//!
//! `mortal DATABASE EFFECTS run|resume|reopen RUN [after|before APPEND | asking | charging]`: runs, resumes
//! or reopens the run; every execution of a tool is noted in the file EFFECTS. The model of `run_broken` fails
//! for good in its middle; with `asking`, the process dies when it asks its model. The runs `run_probed` and
//! `run_blind` charge, the first with a tool that can say what became of a call; with `charging`, the process
//! dies once it has charged. `run_tree` is the root of a tree, `run_flow` a workflow,
//! With `work`, it is a worker of the database until it is killed or told to end (`SIGTERM`).
//! `run_airline` does the actions of a task with the tools of a server, and `run_told` is one that a behaviour is told of. Exits with 0 when the run
//! completed, 1 when it failed, and 4 when it waits for a person.

mod airline;
mod deliveries;
mod flow;
mod kept;
mod tree;
mod work;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use backstop::error_store::Store;
use backstop::event_log::{Batch, Claim, Log, LogError, Ports, Record, RunSummary};
use backstop::layer0::event::{Event, EventKind};
use backstop::layer0::failure::Chain;
use backstop::layer0::id::RunId;
use backstop::layer0::stop::Stop;
use backstop::provider::{ModelRequest, ModelResponse};
use backstop::react::{ReopenRequest, ResumeRequest};
use backstop::{
    Agent, EventLog, Probe, Provider, ProviderError, RetryConfig, RunRequest, ScriptedProvider,
    ToolContext, ToolError, read_events,
};
use serde_json::json;

use self::kept::Kept;

type Failed = Box<dyn std::error::Error>;

/// Where executions are noted.
#[derive(Clone)]
struct Effects {
    path: PathBuf,
    /// Does the process die when it has charged?
    dies_charging: bool,
}

fn note(context: &ToolContext) -> Result<(), ToolError> {
    note_line(context, context.call_id.as_str())
}

fn note_line(context: &ToolContext, line: &str) -> Result<(), ToolError> {
    let failed = |error: std::io::Error| ToolError::ExecutionFailed(error.to_string());
    let Some(Effects { path, .. }) = context.state::<Effects>() else {
        return Err(ToolError::ExecutionFailed("there is no place for notes".into()));
    };
    let mut file =
        std::fs::OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
    // In one write, because tools of a batch note at the same time.
    let line = format!("{line}\n");
    file.write_all(line.as_bytes()).map_err(failed)?;
    file.sync_all().map_err(failed)
}

/// Looks something up.
#[backstop::tool(idempotent)]
async fn look(at: String, context: &ToolContext) -> Result<String, ToolError> {
    note(context)?;
    Ok(format!("saw {at}"))
}

/// Pays.
#[backstop::tool]
async fn pay(cents: u32, context: &ToolContext) -> Result<String, ToolError> {
    note(context)?;
    Ok(format!("paid {cents}"))
}

/// Fails at length.
#[backstop::tool(idempotent)]
async fn query(context: &ToolContext) -> Result<String, ToolError> {
    note(context)?;
    Err(ToolError::ExecutionFailed("no such table\n".repeat(50)).with_code("SQL_ERROR"))
}

/// Wipes, if a person agrees.
#[backstop::tool(approval)]
async fn wipe(context: &ToolContext) -> Result<String, ToolError> {
    note(context)?;
    Ok("wiped".into())
}

/// Charges, and is asked what became of it.
#[backstop::tool(probe = is_charged)]
async fn charge(context: &ToolContext) -> Result<String, ToolError> {
    charged(context)
}

/// Charges, and cannot say what became of it.
#[backstop::tool]
async fn charge_blindly(context: &ToolContext) -> Result<String, ToolError> {
    charged(context)
}

fn charged(context: &ToolContext) -> Result<String, ToolError> {
    note(context)?;
    if context.state::<Effects>().is_some_and(|effects| effects.dies_charging) {
        Deadly::die();
    }
    Ok("charged".into())
}

/// Looks the call up in what was noted.
async fn is_charged(context: &ToolContext) -> Result<Probe, ToolError> {
    let noted = context.state::<Effects>().and_then(|it| std::fs::read_to_string(&it.path).ok());
    Ok(match noted.unwrap_or_default().lines().any(|line| *line == *context.call_id.as_str()) {
        true => Probe::happened_with(json!("charged")),
        false => Probe::DidNot,
    })
}

/// A log around whose appends the process dies.
struct Deadly {
    log: Arc<dyn EventLog>,
    appends: AtomicU64,
    after: Option<u64>,
    before: Option<u64>,
}

impl Deadly {
    fn die() -> ! {
        let id = std::process::id().to_string();
        let _ = std::process::Command::new("kill").args(["-9", &id]).status();
        loop {
            std::thread::park();
        }
    }
}

impl EventLog for Deadly {
    fn ports(&self) -> Ports<'_> {
        self.log.ports().log(self)
    }
}

#[async_trait]
impl Log for Deadly {
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        self.log.claim(run).await
    }

    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        let number = self.appends.fetch_add(1, Ordering::SeqCst) + 1;
        if self.before == Some(number) {
            Self::die();
        }
        self.log.append(batch).await?;
        if self.after == Some(number) {
            Self::die();
        }
        Ok(())
    }

    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        self.log.summary(run).await
    }

    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        self.log.records(run, from_seq).await
    }

    fn claim_new(&self, run: &RunId) -> Claim {
        self.log.claim_new(run)
    }
}

fn script() -> serde_json::Value {
    json!([
        {"tool_calls": [
            {"id": "c1", "name": "look", "arguments": {"at": "sun"}},
            {"id": "c2", "name": "pay", "arguments": {"cents": 5}},
            {"id": "c3", "name": "query"},
        ], "usage": {"input_tokens": 10, "output_tokens": 5}},
        {"error": {"kind": "transient"}},
        {"tool_calls": [
            {"id": "c4", "name": "wipe"},
            {"id": "c5", "name": "look", "arguments": {"at": "moon"}},
        ], "usage": {"input_tokens": 20, "output_tokens": 5}},
        {"text": "done", "usage": {"input_tokens": 30, "output_tokens": 1}},
    ])
}

/// One call of this tool.
fn charging(tool: &str) -> serde_json::Value {
    json!([{"tool_calls": [{"id": "c1", "name": tool}]}, {"text": "done"}])
}

/// The same, but the model fails for good in the middle.
fn broken_script() -> serde_json::Value {
    let mut script = script();
    if let Some(answers) = script.as_array_mut() {
        answers.insert(2, json!({"error": {"kind": "auth_failed"}}));
    }
    script
}

/// A model that kills its process.
struct Fatal;

#[async_trait]
impl Provider for Fatal {
    fn name(&self) -> &str {
        "script"
    }

    fn model(&self) -> &str {
        "fatal"
    }

    async fn complete(&self, _: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        Deadly::die()
    }
}

/// How many answers of the script a record has used up.
fn outcomes(events: &[Event]) -> usize {
    let used = |event: &&Event| match &event.kind {
        EventKind::ModelResponded(_) => true,
        EventKind::ModelAttempted(attempted) => attempted.code.is_some(),
        _ => false,
    };
    events.iter().filter(used).count()
}

async fn act(args: &[String]) -> Result<Stop, Failed> {
    if let [database, effects, act] = args
        && act == "work"
    {
        return work::act(database, effects).await;
    }
    let [database, effects, act, run, rest @ ..] = args else { return Err("arguments".into()) };
    let at = rest.get(1).map(|number| number.parse()).transpose()?;
    let when = |word: &str| rest.first().filter(|given| *given == word).and(at);
    let database = Kept::open(database).await?;
    let run = RunId::from(run.as_str());
    let answered = match read_events(&*database.log(), &run).await {
        Ok((_, events)) => outcomes(&events),
        Err(_) => 0,
    };
    let log = Deadly {
        log: database.log(),
        appends: AtomicU64::new(0),
        after: when("after"),
        before: when("before"),
    };
    let effects = Effects {
        path: effects.into(),
        dies_charging: rest.first().is_some_and(|when| when == "charging"),
    };
    if run.as_str() == "run_tree" {
        return tree::act(database, log, effects, run, act == "resume").await;
    }
    if run.as_str() == "run_airline" {
        return airline::act(database, log, run, answered, act == "resume").await;
    }
    if run.as_str() == "run_told" {
        return deliveries::act(database, log, effects, run).await;
    }
    if run.as_str() == "run_flow" {
        return flow::act(database, log, effects, run, act == "resume").await;
    }
    let script = match run.as_str() {
        "run_broken" => broken_script(),
        "run_probed" => charging("charge"),
        "run_blind" => charging("charge_blindly"),
        _ => script(),
    };
    let answers: Vec<_> = serde_json::from_value(script)?;
    let agent = match rest.first().is_some_and(|when| when == "asking") {
        true => Agent::builder(Fatal),
        false => Agent::builder(ScriptedProvider::new(answers).starting_at(answered)),
    };
    let agent = agent
        .name("mortal")
        .retry(
            RetryConfig::new()
                .base(std::time::Duration::from_millis(0))
                .cap(std::time::Duration::from_millis(0)),
        )
        .tool(look)
        .tool(pay)
        .tool(query)
        .tool(wipe)
        .tool(charge)
        .tool(charge_blindly)
        .state(effects)
        .shared_error_store(database.errors())
        .log(log)
        .build()?;
    let outcome = match act.as_str() {
        "run" => agent.run(RunRequest::new("go").session("s-1").run(run)).await?,
        "reopen" => agent.reopen(ReopenRequest::new(run).by("ops")).await?,
        _ => agent.resume(ResumeRequest::new(run)).await?,
    };
    database.close().await;
    Ok(outcome.stop)
}

#[tokio::main]
#[allow(clippy::print_stderr, reason = "the test that starts it shows its standard error")]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match act(&args).await {
        Ok(Stop::Completed) => ExitCode::SUCCESS,
        Ok(Stop::WaitingApproval) => ExitCode::from(4),
        Ok(stop) => {
            eprintln!("stopped: {stop:?}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{}", Chain(&*error));
            ExitCode::FAILURE
        }
    }
}
