//! Output of models and tools in recordable form: without the secrets that the process holds.

use std::borrow::Cow;
use std::sync::Arc;

use backstop_event_log::Decision;
use backstop_react_machine::AgentDefinition;
use backstop_redact::Redactor;
use layer0::JsonText;
use layer0::message::{Message, ProviderState, StopReason, ToolCall, Transcript};

use crate::decide_error::DecideError;

pub(crate) fn redact_shared(redactor: &Redactor, text: Arc<str>) -> Arc<str> {
    match redactor.redact_held(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(text) => text.into(),
    }
}

/// Returns messages as the record may hold them; the same ones, where nothing has to be changed.
pub(crate) fn recordable_messages(redactor: &Redactor, messages: &Transcript) -> Transcript {
    let mut recordable = Transcript::default();
    for message in messages.messages() {
        let mut message = (**message).clone();
        match &mut message {
            Message::System { content } | Message::User { content, .. } => {
                *content = redact_shared(redactor, Arc::clone(content));
            }
            Message::Assistant { content, tool_calls, provider_state } => {
                *content = redact_shared(redactor, Arc::clone(content));
                recordable_calls(redactor, tool_calls);
                let state = provider_state.take();
                *provider_state = state.and_then(|state| recordable_state(redactor, state));
            }
            Message::Tool { tool_call_id, content, .. } => {
                *content = redact_shared(redactor, Arc::clone(content));
                if let Cow::Owned(id) = redactor.redact_held(tool_call_id.as_str()) {
                    *tool_call_id = id.into();
                }
            }
            _ => {}
        }
        recordable.push(message);
    }
    recordable
}

pub(crate) fn recordable_calls(redactor: &Redactor, calls: &mut Arc<[ToolCall]>) {
    if redactor.holds_secrets() {
        for call in Arc::make_mut(calls) {
            call.arguments = redactor.redact_held_json(std::mem::take(&mut call.arguments));
            call.name = redact_shared(redactor, Arc::clone(&call.name));
            if let Cow::Owned(id) = redactor.redact_held(call.id.as_str()) {
                call.id = id.into();
            }
        }
    }
}

/// Returns the state that a provider wants back, unless it contains a secret: the provider would refuse changed state.
pub(crate) fn recordable_state(redactor: &Redactor, state: ProviderState) -> Option<ProviderState> {
    let is_kept = |data: &JsonText| redactor.redact_held_json(data.clone()) == *data;
    let is_recordable =
        !redactor.holds_secrets() || state.parts.iter().all(|part| is_kept(&part.data));
    is_recordable.then_some(state)
}

/// Returns the stop reason of the model; a provider's own word may repeat a secret.
pub(crate) fn recordable_reason(redactor: &Redactor, reason: StopReason) -> StopReason {
    match reason {
        StopReason::Unknown(word) => StopReason::Unknown(redact_shared(redactor, word)),
        known => known,
    }
}

/// Removes secrets from a person's decision before it is recorded.
///
/// # Errors
///
/// [`DecideError::Secret`] when the arguments hold a secret of the process: the tool would run with the placeholder.
pub fn redacted_decision(
    redactor: &Redactor,
    mut decision: Decision,
) -> Result<Decision, DecideError> {
    let arguments = decision.arguments.as_ref();
    if arguments.is_some_and(|text| redactor.redact_held_json(text.clone()) != *text) {
        return Err(DecideError::Secret);
    }
    decision.by = redactor.redact(&decision.by).into_owned();
    decision.reason = decision.reason.map(|why| redactor.redact(&why).into_owned());
    decision.data = decision.data.map(|data| redactor.redact_held_json(data));
    Ok(decision)
}

/// Removes the secrets that the process holds from a definition: the model reads what a run records.
pub(crate) fn without_secrets(
    redactor: &Redactor,
    definition: AgentDefinition,
) -> Result<AgentDefinition, serde_json::Error> {
    if !redactor.holds_secrets() {
        return Ok(definition);
    }
    redactor.redact_held_json(JsonText::from_value(&definition)?).read()
}

#[cfg(test)]
mod tests {
    use layer0::message::StatePart;
    use serde_json::json;

    use super::*;

    /// Spec: S9. What a provider wants back is kept as it came, or not at all.
    #[test]
    fn provider_state_with_a_secret_is_dropped() {
        let redactor = Redactor::new().with_secret("held-secret-key");
        let state = |text: &str| {
            ProviderState::new("p", "m", "e", [StatePart::new(json!({ "thinking": text }))])
        };
        let (clean, leaking) = (state("hm"), state("the key is held-secret-key"));
        assert_eq!(recordable_state(&redactor, clean.clone()), Some(clean));
        assert_eq!(recordable_state(&redactor, leaking.clone()), None);
        assert_eq!(recordable_state(&Redactor::new(), leaking.clone()), Some(leaking));
    }
}
