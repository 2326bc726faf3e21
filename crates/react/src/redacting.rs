//! What models and tools say, as the record may hold it: without the secrets the process holds, and
//! no deeper than a reader can follow.

use std::borrow::Cow;
use std::sync::Arc;

use layer0::message::{ProviderState, ToolCall};
use react_machine::AgentDefinition;
use redact::Redactor;
use serde_json::Value;
use tool::is_deeper;

/// Deeper values are recorded as text. serde_json writes any depth and reads 128 levels, of which the
/// record's own wrapping takes a few.
const MAX_DEPTH: usize = 100;
/// Even deeper ones cannot be written as text: writing goes as deep as they are.
const MAX_TEXT_DEPTH: usize = 1_000;

pub(crate) fn redact_shared(redactor: &Redactor, text: Arc<str>) -> Arc<str> {
    match redactor.redact_held(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(text) => text.into(),
    }
}

pub(crate) fn recordable_calls(redactor: &Redactor, calls: &mut Arc<[ToolCall]>) {
    let too_deep = |call: &ToolCall| is_deeper(&call.arguments, MAX_DEPTH);
    if redactor.holds_secrets() || calls.iter().any(too_deep) {
        for call in Arc::make_mut(calls) {
            let arguments = Arc::unwrap_or_clone(std::mem::take(&mut call.arguments));
            call.arguments = recordable(redactor, arguments).into();
            call.name = redact_shared(redactor, Arc::clone(&call.name));
            if let Cow::Owned(id) = redactor.redact_held(call.id.as_str()) {
                call.id = id.into();
            }
        }
    }
}

/// Returns what a provider wants back, unless a secret is in it: changed, it would be refused.
pub(crate) fn recordable_state(redactor: &Redactor, state: ProviderState) -> Option<ProviderState> {
    let is_kept =
        |data: &Value| !redactor.holds_secrets() || redact_value(redactor, data.clone()) == *data;
    let mut data = state.parts.iter().map(|part| &part.data);
    let is_recordable = data.all(|data| !is_deeper(data, MAX_DEPTH) && is_kept(data));
    is_recordable.then_some(state)
}

pub(crate) fn recordable(redactor: &Redactor, value: Value) -> Value {
    if is_deeper(&value, MAX_TEXT_DEPTH) {
        take_apart(value);
        return Value::String(format!("(a value nested deeper than {MAX_TEXT_DEPTH} levels)"));
    }
    if is_deeper(&value, MAX_DEPTH) {
        redact_value(redactor, Value::String(value.to_string()))
    } else {
        redact_value(redactor, value)
    }
}

/// Drops a value level by level; its own drop goes as deep as it is.
fn take_apart(value: Value) {
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        match value {
            Value::Array(items) => left.extend(items),
            Value::Object(fields) => left.extend(fields.into_iter().map(|(_, value)| value)),
            _ => {}
        }
    }
}

/// Takes the secrets the process holds out of a definition: what a run records, its model is told.
pub(crate) fn without_secrets(
    redactor: &Redactor,
    definition: AgentDefinition,
) -> Result<AgentDefinition, serde_json::Error> {
    if !redactor.holds_secrets() {
        return Ok(definition);
    }
    let value = redact_value(redactor, serde_json::to_value(definition)?);
    serde_json::from_value(value)
}

/// Takes the secrets the process holds out of every string of a value.
fn redact_value(redactor: &Redactor, value: Value) -> Value {
    if !redactor.holds_secrets() {
        return value;
    }
    match value {
        Value::String(text) => match redactor.redact_held(&text) {
            Cow::Borrowed(_) => Value::String(text),
            Cow::Owned(text) => Value::String(text),
        },
        Value::Array(items) => items.into_iter().map(|item| redact_value(redactor, item)).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(key, value)| {
                (redactor.redact_held(&key).into_owned(), redact_value(redactor, value))
            })
            .collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use layer0::message::StatePart;
    use serde_json::json;

    use super::*;

    /// Spec: S9. What a provider wants back is kept as it came, or not at all.
    #[test]
    fn a_state_with_a_held_secret_in_it_is_dropped() {
        let redactor = Redactor::new().with_secret("held-secret-key");
        let state = |text: &str| ProviderState {
            provider: "p".into(),
            model: "m".into(),
            endpoint: "e".into(),
            parts: [StatePart {
                text_before: 0,
                calls_before: 0,
                data: json!({ "thinking": text }),
            }]
            .into(),
        };
        let (clean, leaking) = (state("hm"), state("the key is held-secret-key"));
        assert_eq!(recordable_state(&redactor, clean.clone()), Some(clean));
        assert_eq!(recordable_state(&redactor, leaking.clone()), None);
        assert_eq!(recordable_state(&Redactor::new(), leaking.clone()), Some(leaking));
    }
}
