//! Agents that are served, and clients that call them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use backstop_event_log::{EventLog, MemoryLog};
use backstop_mcp_server::{Offer, Server};
use backstop_orchestrator::LocalOrchestrator;
use backstop_provider::{
    ErrorKind, ModelRequest, ScriptedAnswer, ScriptedProvider, ScriptedToolCall,
};
use backstop_react::Agent;
use backstop_tool::{ToolContext, ToolError, tool};
use layer0::message::{Message, StopReason};
use rmcp::model::{CallToolRequestParams, CallToolResult};
use rmcp::service::{RoleClient, RunningService};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Pays, if a person agrees.
#[tool(approval)]
async fn pay(context: &ToolContext) -> Result<String, ToolError> {
    if let Some(paid) = context.state::<Arc<AtomicU32>>() {
        paid.fetch_add(1, Ordering::SeqCst);
    }
    Ok("paid".into())
}

/// State that the tests inspect.
pub(crate) struct Bench {
    pub(crate) log: Arc<MemoryLog>,
    pub(crate) paid: Arc<AtomicU32>,
    pub(crate) asked: Arc<AtomicU32>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self { log: Arc::default(), paid: Arc::default(), asked: Arc::default() }
    }

    /// Serves one agent, `clerk`, whose input determines its work.
    pub(crate) fn server(&self) -> Server {
        self.offering(Offer::new("clerk", "Does what it is told."))
    }

    /// Serves the agent with this offer.
    pub(crate) fn offering(&self, offer: Offer) -> Server {
        let orchestrator = LocalOrchestrator::builder()
            .operator(self.clerk())
            .shared_log(Arc::clone(&self.log) as Arc<dyn EventLog>)
            .build()
            .unwrap();
        Server::new(orchestrator).offer(offer).answer_within(Duration::from_millis(200))
    }

    /// Builds the agent of the server, in a process of its own.
    pub(crate) fn clerk(&self) -> Agent {
        let asked = Arc::clone(&self.asked);
        let answer = move |request: &ModelRequest| {
            asked.fetch_add(1, Ordering::SeqCst);
            let messages = request.messages.messages();
            let has_answers =
                messages.iter().any(|message| matches!(&**message, Message::Tool { .. }));
            let input = messages.iter().find_map(|message| match &**message {
                Message::User { content, .. } => Some(content.to_string()),
                _ => None,
            });
            match input.as_deref().unwrap_or_default() {
                _ if has_answers || is_told_to_finish(messages) => ScriptedAnswer::saying("done"),
                "pay" => ScriptedAnswer::default().tool_calls([ScriptedToolCall::new(
                    "c1",
                    "pay",
                    json!({}),
                )]),
                "fail" => ScriptedAnswer::failing(ErrorKind::QuotaExhausted),
                "cut" => {
                    let mut cut = ScriptedAnswer::saying("half an ans");
                    cut.stop_reason = Some(StopReason::MaxTokens);
                    cut
                }
                "slow" => ScriptedAnswer::saying("late").delay_ms(400),
                "hang" => ScriptedAnswer::saying("late").delay_ms(3_600_000),
                other => ScriptedAnswer::saying(format!("did: {other}")),
            }
        };
        Agent::builder(ScriptedProvider::from_fn(answer))
            .name("clerk")
            .shared_log(Arc::clone(&self.log) as Arc<dyn EventLog>)
            .state(Arc::clone(&self.paid))
            .tool(pay)
            .build()
            .unwrap()
    }

    /// Connects a client to the server over streams.
    pub(crate) async fn client(&self) -> RunningService<RoleClient, ()> {
        connect(self.server()).await
    }
}

/// Returns whether a person asked the agent to finish when its run was reopened.
fn is_told_to_finish(messages: &[Arc<Message>]) -> bool {
    let mut said = messages.iter().filter_map(|message| match &**message {
        Message::User { content, .. } => Some(content.to_string()),
        _ => None,
    });
    said.any(|said| said == "finish")
}

pub(crate) async fn connect(server: Server) -> RunningService<RoleClient, ()> {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (read, write) = tokio::io::split(theirs);
    tokio::spawn(server.serve_streams(read, write, CancellationToken::new()));
    rmcp::serve_client((), ours).await.unwrap()
}

pub(crate) fn params(arguments: Value) -> CallToolRequestParams {
    CallToolRequestParams::new("clerk").with_arguments(arguments.as_object().cloned().unwrap())
}

pub(crate) async fn call(
    client: &RunningService<RoleClient, ()>,
    arguments: Value,
) -> (bool, String, Value) {
    shown(client.call_tool(params(arguments)).await.unwrap())
}

/// Returns whether a result is an error, its text for the model, and its structured content.
pub(crate) fn shown(result: CallToolResult) -> (bool, String, Value) {
    let text = result.content[0].as_text().unwrap().text.clone();
    (result.is_error.unwrap_or(false), text, result.structured_content.unwrap())
}
