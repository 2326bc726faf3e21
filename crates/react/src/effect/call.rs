//! A tool call: its admission, its time limit and its context.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use backstop_tool::{Admitted, ToolContext, ToolError};
use layer0::id::{CallId, SessionId};
use layer0::{JsonText, text};

use super::effects::Effects;
use crate::agent::inner::AgentInner;
use crate::hook::HookContext;
use crate::journal::Execution;

/// Decides whether a call may run. The tool's own code, which returns its needs, may panic.
pub(crate) fn admit(
    agent: &AgentInner,
    tool: &str,
    arguments: JsonText,
) -> Result<Admitted, ToolError> {
    let admit = || agent.tools.admit(tool, arguments, &agent.grants);
    std::panic::catch_unwind(AssertUnwindSafe(admit))
        .unwrap_or_else(|panic| Err(ToolError::Panicked(text::panic_message(panic))))
}

/// Returns the admitted tool of an execution, or the error if the tool no longer exists.
pub(super) fn admit_execution(
    effects: &Effects,
    execution: &Execution,
) -> Result<Admitted, ToolError> {
    match &execution.admitted {
        Some(admitted) => Ok(admitted.clone()),
        None => admit(&effects.agent, &execution.run.tool, execution.run.arguments.clone()),
    }
}

/// Returns the time limit of a tool.
pub(super) fn resolve_time_limit(agent: &AgentInner, admitted: &Admitted) -> Duration {
    let limit = Duration::from_millis(agent.definition.limits.tool_timeout_ms);
    admitted.spec().timeout.unwrap_or(limit)
}

/// Returns the context that a tool gets for a call.
pub(super) fn build_tool_context(
    effects: &Effects,
    call_id: &CallId,
    sessions: &Arc<[SessionId]>,
    admitted: &Admitted,
) -> ToolContext {
    let agent = &effects.agent;
    let HookContext { run, session } = effects.context.clone();
    // time of day: the deadline is shown to the tool; the limit itself is measured.
    let deadline = agent.clock.now().after(resolve_time_limit(agent, admitted));
    let (sessions, call_id) = (Arc::clone(sessions), call_id.clone());
    let mut context = ToolContext::reading(run, session, sessions, call_id, deadline);
    context.granted = Arc::clone(admitted.needs());
    context.grants = agent.grants.clone();
    context.app_state.clone_from(&agent.app_state);
    context.redactor = agent.redactor.clone();
    context.trace_parent.clone_from(&effects.place.trace_parent);
    context
}
