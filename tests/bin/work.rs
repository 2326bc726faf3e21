//! A worker: `payer` pays three times, one after the other; `lead` asks `payer` by name and pays once; `flow` is a
//! workflow that asks `payer` and then `lead`. Each payment is noted when it begins, and takes a while.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use backstop::clock::{Clock, SystemClock};
use backstop::layer0::stop::Stop;
use backstop::orchestrator::{Sequence, Workflow};
use backstop::provider::{ModelRequest, ScriptedToolCall};
use backstop::react::{AgentBuilder, OperatorTool};
use backstop::{
    Agent, EventLog, Message, PostgresDatabase, PostgresOptions, ScriptedAnswer, ScriptedProvider,
    ToolContext, ToolError, Worker,
};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::{Effects, Failed, note_line};

/// How long a payment takes, at most 50 ms.
const PAYMENT: Duration = Duration::from_millis(30);
/// Shorter than in production, so that a test need not wait for its end.
const LEASE: Duration = Duration::from_secs(3);

/// Pays, in a while.
#[backstop::tool]
async fn settle(context: &ToolContext) -> Result<String, ToolError> {
    note_line(context, &format!("{} {}", context.run, context.call_id))?;
    SystemClock.sleep(PAYMENT).await;
    Ok("paid".into())
}

/// Calls tools one after the other, then says that it is done.
fn calling(tools: &'static [&'static str]) -> ScriptedProvider {
    ScriptedProvider::from_fn(move |request: &ModelRequest| {
        let messages = request.messages.messages().iter();
        let done = messages.filter(|it| matches!(***it, Message::Tool { .. })).count();
        match tools.get(done) {
            Some(tool) => {
                let arguments =
                    if *tool == "settle" { json!({}) } else { json!({ "input": "go" }) };
                let call = ScriptedToolCall::new(format!("call-{done}"), *tool, arguments);
                ScriptedAnswer::default().tool_calls([call])
            }
            None => ScriptedAnswer::saying("done"),
        }
    })
}

/// Works until it is told to end.
pub(crate) async fn act(database: &str, effects: &str) -> Result<Stop, Failed> {
    let options = PostgresOptions::new(database)?.connections(4).lease(LEASE);
    let database = PostgresDatabase::connect_with(options).await?;
    let effects = Effects { path: PathBuf::from(effects), dies_charging: false };
    let log: Arc<dyn EventLog> = Arc::new(database.log());
    let agent = |name: &'static str, tools| -> AgentBuilder {
        Agent::builder(calling(tools))
            .name(name)
            .tool(settle)
            .state(effects.clone())
            .shared_log(Arc::clone(&log))
    };
    let lead = agent("lead", &["payer", "settle"]).tool(OperatorTool::new("payer", "Pays."));
    let flow = Workflow::new(Sequence::new("flow", ["payer", "lead"]), Arc::clone(&log));
    let worker = Worker::builder(&database)
        .operator(agent("payer", &["settle", "settle", "settle"]).build()?)
        .operator(lead.build()?)
        .operator(flow)
        .concurrency(4)
        .build()?;
    let stop = backstop::react::CancellationToken::new();
    let (mut told, stops) = (signal(SignalKind::terminate())?, stop.clone());
    tokio::spawn(async move {
        told.recv().await;
        stops.cancel();
    });
    worker.run(stop).await?;
    database.close().await;
    Ok(Stop::Completed)
}
