//! Proposals: details that a tool adds to its call before a person decides.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use backstop_tool::{Admitted, ToolError, failed_text};
use layer0::JsonText;
use layer0::message::ToolCall;

use super::call::{admit, build_tool_context, resolve_time_limit};
use super::effects::Effects;
use super::failure::Failing;
use crate::agent::inner::AgentInner;
use crate::effect::guarded;
use crate::journal::{Gated, PendingEvent, StepEnd};

/// Returns whether one of these calls needs an approval.
pub(crate) fn is_any_held(agent: &AgentInner, calls: &[ToolCall]) -> bool {
    calls.iter().any(|call| is_held(agent, call))
}

fn is_held(agent: &AgentInner, call: &ToolCall) -> bool {
    agent.tools.specs().any(|spec| spec.approval && spec.name == call.name)
}

/// Adds their tools' proposals to calls that the gates let through. Nothing is added to calls that a person has
/// changed, but their tools may refuse them.
pub(super) async fn add_proposals(effects: &Effects, gated: StepEnd, changed: bool) -> StepEnd {
    let StepEnd::Gates(Ok(mut gated)) = gated else { return gated };
    let is_asked_about =
        |one: &&mut Gated| one.skipped.is_none() && is_held(&effects.agent, &one.call);
    for one in gated.iter_mut().filter(is_asked_about) {
        add(effects, one, changed).await;
    }
    StepEnd::Gates(Ok(gated))
}

async fn add(effects: &Effects, gated: &mut Gated, changed: bool) {
    let Gated { call, answer, .. } = gated;
    let agent = &effects.agent;
    // A call that is refused anyway is answered when it is looked up.
    let Ok(admitted) = admit(agent, &call.name, call.arguments.clone()) else { return };
    match request_proposal(effects, call, admitted).await {
        Ok(Some(arguments)) if !changed => {
            call.arguments = agent.redactor.redact_held_json(arguments);
        }
        Ok(_) => {}
        Err(error) => {
            let failing = Failing::new(agent, &effects.context, &call.id, &call.name, 0);
            let refused = failing.respond(&error, &failed_text(&call.name, &error));
            *answer = Some(Box::new(PendingEvent(refused)));
        }
    }
}

/// Asks the tool, whose code may panic, hang or fail.
async fn request_proposal(
    effects: &Effects,
    call: &ToolCall,
    admitted: Admitted,
) -> Result<Option<JsonText>, ToolError> {
    let limit: Duration = resolve_time_limit(&effects.agent, &admitted);
    let own = Arc::from([effects.context.session.clone()]);
    let context = build_tool_context(effects, &call.id, &own, &admitted);
    let tool = admitted.tool();
    let asked = AssertUnwindSafe(async { tool.proposal(&admitted.arguments, &context).await });
    guarded::ask(asked, limit, &effects.agent.clock).await
}
