//! What models and tools say, as the record may hold it: without the secrets the process holds, and
//! no deeper than a reader can follow.

use std::borrow::Cow;
use std::sync::Arc;

use layer0::message::ToolCall;
use redact::Redactor;
use serde_json::Value;

/// Deeper values are recorded as text. serde_json writes any depth and reads 128 levels, of which the
/// record's own wrapping takes a few.
const MAX_DEPTH: usize = 100;

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
            call.arguments = recordable(redactor, std::mem::take(&mut call.arguments));
            call.name = redact_shared(redactor, Arc::clone(&call.name));
            if let Cow::Owned(id) = redactor.redact_held(call.id.as_str()) {
                call.id = id.into();
            }
        }
    }
}

pub(crate) fn recordable(redactor: &Redactor, value: Value) -> Value {
    if is_deeper(&value, MAX_DEPTH) {
        redact_value(redactor, Value::String(value.to_string()))
    } else {
        redact_value(redactor, value)
    }
}

fn is_deeper(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels == 0 || items.iter().any(|item| is_deeper(item, levels - 1)),
        Value::Object(fields) => {
            levels == 0 || fields.values().any(|item| is_deeper(item, levels - 1))
        }
        _ => false,
    }
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
