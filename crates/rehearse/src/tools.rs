//! Scripted tools.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::Clock;
use backstop_config::{ProbeVerdict, ScriptedAsk, ScriptedCall, ScriptedTool, resolve_capability};
use backstop_tool::{Arguments, Given, Probe, Tool, ToolContext, ToolError};
use layer0::{JsonText, Retry, ToolSpec};
use serde_json::json;

use crate::leftovers::Executions;

/// A tool with scripted calls.
pub(crate) struct Scripted {
    spec: ToolSpec,
    calls: Vec<ScriptedCall>,
    probe: Probe,
    /// Number of executions until now.
    made: Executions,
    clock: Arc<dyn Clock>,
}

impl Scripted {
    pub(crate) fn new(
        tool: &ScriptedTool,
        made: Executions,
        folder: &Path,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let schema = tool.schema.clone().unwrap_or_else(|| json!({"type": "object"}));
        let description = tool.description.as_deref().unwrap_or("A scripted tool.");
        let mut spec = ToolSpec::new(tool.name.as_str(), description, schema);
        spec.output_schema = tool.output_schema.as_ref().map(JsonText::from);
        spec.capabilities =
            tool.capabilities.iter().map(|text| resolve_capability(text, folder)).collect();
        spec.idempotent = tool.idempotent;
        spec.exploratory = tool.exploratory;
        spec.approval = tool.approval;
        (spec.probe, spec.probe_is_final) = (tool.probe.is_some(), tool.probe_is_final);
        spec.expires_after = tool.expires_after_ms.map(Duration::from_millis);
        spec.approvers = tool.approvers.clone();
        spec.approval_schema = tool.approval_schema.as_ref().map(JsonText::from);
        spec.timeout = tool.timeout_ms.map(Duration::from_millis);
        let probe = match tool.probe {
            Some(ProbeVerdict::Happened) => {
                Probe::Happened(tool.probe_output.as_ref().map(JsonText::from))
            }
            Some(ProbeVerdict::DidNot) => Probe::DidNot,
            _ => Probe::Unknown,
        };
        Self { spec, calls: tool.calls.clone(), probe, made, clock }
    }
}

#[async_trait]
impl Tool for Scripted {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn probe(&self, _: &Arguments, _: &ToolContext) -> Result<Probe, ToolError> {
        Ok(self.probe.clone())
    }

    async fn call(&self, _: &Arguments, context: &ToolContext) -> Result<JsonText, ToolError> {
        let index = self.made.fetch_add(1, Ordering::Relaxed);
        let Some(call) = self.calls.get(index).or(self.calls.last()) else {
            return Ok(JsonText::string("ok"));
        };
        if let Some(ms) = call.hang_ms {
            self.clock.sleep(Duration::from_millis(ms)).await;
        }
        let given = match &call.ask {
            Some(ScriptedAsk { message, schema, .. }) => {
                let schema = schema.clone().unwrap_or_else(|| json!({"type": "object"}));
                Some(context.ask_person(message, &schema).await?)
            }
            None => None,
        };
        if let Some(text) = &call.panic {
            // Unwinds without the panic hook, which would print to the terminal.
            std::panic::resume_unwind(Box::new(text.clone()));
        }
        if let Some(text) = &call.error {
            let error = ToolError::ExecutionFailed(text.clone());
            let error = match call.retry_after_ms {
                Some(ms) => error.with_retry(Retry::After(Duration::from_millis(ms))),
                None if call.retryable => error.with_retry(Retry::Backoff),
                None => error,
            };
            return Err(match &call.code {
                Some(code) => error.with_code(code.as_str()),
                None => error,
            });
        }
        Ok(match (&call.output, call.output_bytes) {
            (Some(output), _) => output.into(),
            (None, Some(bytes)) => JsonText::string(&"x".repeat(bytes)),
            (None, None) => match given {
                None => JsonText::string("ok"),
                Some(Given::Data(data)) => data,
                Some(Given::Declined) => JsonText::string("declined"),
                Some(_) => JsonText::string("no person is there"),
            },
        })
    }
}
