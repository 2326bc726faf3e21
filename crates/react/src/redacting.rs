//! Takes the secrets the process holds out of what models and tools say.

use std::borrow::Cow;
use std::sync::Arc;

use layer0::message::ToolCall;
use redact::Redactor;
use serde_json::Value;

pub(crate) fn redact_shared(redactor: &Redactor, text: Arc<str>) -> Arc<str> {
    match redactor.redact_held(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(text) => text.into(),
    }
}

pub(crate) fn redact_calls(redactor: &Redactor, calls: &mut Arc<[ToolCall]>) {
    if redactor.holds_secrets() {
        for call in Arc::make_mut(calls) {
            call.arguments = redact_value(redactor, std::mem::take(&mut call.arguments));
            call.name = redact_shared(redactor, Arc::clone(&call.name));
            if let Cow::Owned(id) = redactor.redact_held(call.id.as_str()) {
                call.id = id.into();
            }
        }
    }
}

/// Takes the secrets the process holds out of every string of a value.
pub(crate) fn redact_value(redactor: &Redactor, value: Value) -> Value {
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
