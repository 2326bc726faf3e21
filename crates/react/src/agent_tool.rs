use std::sync::Arc;

use async_trait::async_trait;
use layer0::ToolSpec;
use layer0::failure::Chain;
use layer0::stop::Stop;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tool::{Tool, ToolContext, ToolError};
use tracing::Instrument;
use tracing::instrument::WithSubscriber;

use crate::agent::{Agent, RunRequest};

/// An agent that another one calls as a tool; made by [`Agent::as_tool`].
///
/// The run it starts is recorded under the caller's session, with the caller's run as its parent. If
/// it fails, the call fails with the failure's code, and its whole chain is what the tool reports. If
/// the call is given up, at its timeout or because the caller is stopped, the run is cancelled, which
/// it records by itself.
#[derive(Debug, Clone)]
pub struct AgentTool {
    agent: Agent,
    spec: ToolSpec,
}

impl Agent {
    /// Makes a tool of the agent, under its name. The description tells the calling model what the
    /// agent is for.
    ///
    /// Its own tools may act, so it is not idempotent. Its timeout is the calling agent's unless
    /// [`AgentTool::timeout`] sets one.
    pub fn as_tool(&self, description: impl Into<Arc<str>>) -> AgentTool {
        let schema = json!({
            "type": "object",
            "properties": {"input": {"type": "string", "description": "What to ask."}},
            "required": ["input"],
            "additionalProperties": false,
        });
        AgentTool { agent: self.clone(), spec: ToolSpec::new(self.name(), description, schema) }
    }
}

impl AgentTool {
    /// Limits how long one run of the agent may take.
    #[must_use]
    pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
        self.spec = self.spec.timeout(timeout);
        self
    }
}

#[async_trait]
impl Tool for AgentTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &Value, context: &ToolContext) -> Result<Value, ToolError> {
        let request = RunRequest::new(arguments["input"].as_str().unwrap_or_default())
            .session(context.session.clone())
            .parent(context.run.clone())
            .depth(context.depth.saturating_add(1));
        // A run of its own task ends with a complete record when the call is given up.
        let token = CancellationToken::new();
        let request = request.cancelled_by(token.clone());
        let _cancel = token.drop_guard();
        let agent = self.agent.clone();
        let run = async move { agent.run(request).await };
        let (done, result) = oneshot::channel();
        let task = async move { drop(done.send(run.await)) };
        let task = task.instrument(tracing::Span::current()).with_current_subscriber();
        tokio::spawn(self.agent.inner.clock.track(Box::pin(task)));
        let lost = |_| ToolError::Other("the agent's task was lost".into());
        match result.await.map_err(lost)? {
            Ok(outcome) if outcome.stop == Stop::Completed => {
                Ok(Value::String(outcome.output.as_ref().to_owned()))
            }
            Ok(outcome) => {
                let reason = outcome.stop.reason().map(|code| code.to_string()).unwrap_or_default();
                let text = format!("stopped before the end ({reason}): {}", outcome.output);
                Err(ToolError::ExecutionFailed(text).with_code(reason))
            }
            Err(failure) => {
                Err(ToolError::ExecutionFailed(Chain(&failure).to_string())
                    .with_code(failure.code()))
            }
        }
    }
}
