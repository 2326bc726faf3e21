//! A supervisor that dispatches two specialists: one fails and goes on where it failed, the other waits for
//! a person in between. A behaviour tells ops of the failure, and the next run remembers the first one. Offline, on
//! a clock that only waits as long as nothing else is to do.
//!
//! `cargo run -p backstop --example oncall`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program speaks to its terminal")]

use std::sync::Arc;
use std::time::Duration;

use backstop::behaviors::behavior;
use backstop::clock::VirtualClock;
use backstop::event_log::{Inbox, Runs};
use backstop::layer0::event::EventKind;
use backstop::operator::{Context, Task};
use backstop::prelude::*;
use backstop::provider::{ErrorKind, ModelRequest};
use backstop::{
    BehaviorHost, EventLog, LocalOrchestrator, MemoryLog, MemoryStateStore, Message, OperatorTool,
    Orchestrator, RunFilter, StateMemory,
};
use serde_json::json;

/// Reads the metrics of the database.
#[tool(idempotent)]
async fn metrics() -> Result<String, ToolError> {
    Ok("200 of 200 connections are in use".into())
}

/// Restarts a host.
#[tool]
async fn restart(host: String) -> Result<String, ToolError> {
    Ok(format!("{host} is up again"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = VirtualClock::starting_at("2026-01-01T03:00:00Z".parse()?);
    let log = Arc::new(MemoryLog::new());
    let agent = |model: ScriptedProvider, name: &'static str| {
        Agent::builder(model)
            .name(name)
            .clock(Arc::new(clock.clone()))
            .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
    };
    // Its provider is away after the first answer, longer than its own retries last.
    let database = ScriptedProvider::new([
        ScriptedAnswer::calling("metrics", json!({})),
        ScriptedAnswer::failing(ErrorKind::Transient),
        ScriptedAnswer::failing(ErrorKind::Transient),
        ScriptedAnswer::failing(ErrorKind::Transient),
        ScriptedAnswer::saying("The pool is full: web-3 holds every connection."),
    ]);
    let database = agent(database, "database").tool(metrics).build()?;
    let hosts = ScriptedProvider::from_fn(|request| match answers(request) {
        0 => ScriptedAnswer::calling("restart", json!({ "host": "web-3" })),
        _ => ScriptedAnswer::saying("I restarted web-3."),
    });
    let hosts = agent(hosts, "hosts").tool(restart).require_approval("restart").build()?;
    let lead = ScriptedProvider::from_fn(|request| match answers(request) {
        0 if remembers(request, "web-3 held") => ScriptedAnswer::saying("It was web-3."),
        0 => ScriptedAnswer::calling("database", json!({ "input": "Why is it slow?" })),
        1 => ScriptedAnswer::calling("hosts", json!({ "input": "Restart web-3." })),
        _ => ScriptedAnswer::saying("web-3 held every connection; it was restarted."),
    });
    let lead = agent(lead, "lead")
        .tool(OperatorTool::new("database", "Knows the database."))
        .tool(OperatorTool::new("hosts", "Operates hosts."))
        .budget(Budget::new().model_calls(20))
        .memory(StateMemory::of_agent(Arc::new(MemoryStateStore::new()), "lead"))
        .build()?;
    let oncall = LocalOrchestrator::builder()
        .clock(Arc::new(clock.clone()))
        .shared_log(Arc::clone(&log) as Arc<dyn EventLog>)
        .operator(lead.clone())
        .operator(database)
        .operator(hosts)
        .build()?;

    let tell =
        behavior("tell ops", "run.failed[reason=provider.*]".parse()?, |delivery, _| async move {
            if let EventKind::RunFailed(failed) = &delivery.event.kind {
                println!("ops hear: {}", failed.reason);
            }
            Ok(())
        });
    let host =
        BehaviorHost::builder(Arc::clone(&log) as Arc<dyn EventLog>).behavior(tell).build()?;
    let served = host.serve();
    served.settle(Duration::from_secs(5)).await;

    let answer = oncall.dispatch("lead", Task::text("The shop is slow."), Context::root()).await?;
    served.settle(Duration::from_secs(5)).await;
    let run = answer.run.ok_or("an agent records its runs")?;
    println!("lead: {}", answer.stop.reason().map(|code| code.to_string()).unwrap_or_default());
    for open in log.open_approvals().await? {
        println!("{} wants {}", open.tool, open.arguments);
        lead.approve(&open.id, "ops").await?;
    }
    let answer = oncall.resume("lead", run).await?;
    println!("lead: {}", answer.output.as_str().unwrap_or_default());
    println!("{} model attempts, with those of both specialists", answer.usage.model_attempts);
    let mut runs = log.runs(RunFilter::new()).await?;
    runs.sort_by(|one, other| one.agent.cmp(&other.agent));
    for run in runs {
        println!("{}: reopened {} times", run.agent, run.reopens);
    }
    let again = Task::text("Which host was it that slowed the shop?");
    let answer = oncall.dispatch("lead", again, Context::root()).await?;
    println!("next run: {}", answer.output.as_str().unwrap_or_default());
    served.stop().await;
    Ok(())
}

/// Does the model read this in what is remembered?
fn remembers(request: &ModelRequest, text: &str) -> bool {
    let messages = request.messages.messages().iter();
    messages
        .filter(|message| matches!(***message, Message::System { .. }))
        .any(|message| format!("{message:?}").contains(text))
}

/// Returns how many tools have answered.
fn answers(request: &ModelRequest) -> usize {
    let messages = request.messages.messages().iter();
    messages.filter(|message| matches!(***message, Message::Tool { .. })).count()
}
