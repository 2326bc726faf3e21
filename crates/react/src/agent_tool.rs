use std::sync::Arc;

use async_trait::async_trait;
use backstop_tool::{Arguments, DispatchSpec, Tool, ToolContext, ToolError};
use layer0::failure::Chain;
use layer0::stop::Stop;
use layer0::{JsonText, ToolSpec};
use serde_json::json;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use tracing::instrument::WithSubscriber;

use crate::agent::Agent;
use crate::below::Caller;
use crate::digest::digest_of;
use crate::request::RunRequest;

/// An agent that another one calls as a tool; made by [`Agent::as_tool`].
///
/// The run it starts is recorded under the caller's session, with the caller's run as its parent. It
/// may use what the caller has left of its budget and its time, less one model call, and what it used
/// counts for the caller too; of several in one answer, each runs when the one before it has ended. If
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

    fn dispatch(&self, arguments: &Arguments) -> Option<DispatchSpec> {
        let definition = &self.agent.inner.definition;
        let digest = digest_of(arguments["input"].as_str().unwrap_or_default());
        Some(DispatchSpec::new(Arc::clone(&definition.name), digest, definition.price.is_some()))
    }

    fn checks_arguments(&self) -> bool {
        true
    }

    async fn call(
        &self,
        arguments: &Arguments,
        context: &ToolContext,
    ) -> Result<JsonText, ToolError> {
        let input = arguments.text_of("input")?;
        let inner = &self.agent.inner;
        let mut request = RunRequest::new(input)
            .session(context.session.clone())
            .parent(context.run.clone())
            .depth(context.depth.saturating_add(1));
        // A run of its own task ends with a complete record when the call is given up.
        let token = match Caller::of(context) {
            Some(caller) => {
                request = request.within(caller, caller.grant()?);
                caller.cancellation.clone()
            }
            None => CancellationToken::new(),
        };
        request = request.cancelled_by(token.clone());
        let _cancel = token.drop_guard();
        let agent = self.agent.clone();
        let run = async move { agent.run(request).await };
        let (done, result) = oneshot::channel();
        let task = async move { drop(done.send(run.await)) };
        let task = task.instrument(tracing::Span::current()).with_current_subscriber();
        tokio::spawn(inner.clock.track(Box::pin(task)));
        let lost = |_| ToolError::Other("the agent's task was lost".into());
        match result.await.map_err(lost)? {
            Ok(outcome) if outcome.stop == Stop::Completed => Ok(JsonText::string(&outcome.output)),
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
