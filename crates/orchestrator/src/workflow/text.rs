//! Values as a record has them.

use std::sync::Arc;

use backstop_redact::Redactor;
use layer0::{JsonText, push_hex};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Returns a value as text: JSON with sorted keys, a string as it is.
pub(super) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => JsonText::from(other).get().to_owned(),
    }
}

/// Returns what a text in a record stands for: an object or a list where it is one, itself otherwise.
pub(super) fn value_of(text: &str) -> Value {
    let parsed = serde_json::from_str(text).ok();
    let compound = parsed.filter(|value: &Value| value.is_object() || value.is_array());
    compound.unwrap_or_else(|| Value::from(text))
}

/// Returns the SHA-256 of what a step is asked, in hex.
pub(super) fn input_digest(input: &Value) -> Arc<str> {
    digest(&text_of(input))
}

pub(super) fn digest(text: &str) -> Arc<str> {
    let mut digits = String::with_capacity(64);
    push_hex(&mut digits, &Sha256::digest(text));
    digits.into()
}

/// Takes out what this process holds secret.
pub(super) fn redacted(redactor: &Redactor, mut value: Value) -> Value {
    let take_out = |inner: &mut Value| *inner = redacted(redactor, std::mem::take(inner));
    match &mut value {
        Value::String(text) => *text = redactor.redact_held(text).into_owned(),
        Value::Array(items) => items.iter_mut().for_each(take_out),
        Value::Object(fields) => fields.values_mut().for_each(take_out),
        _ => {}
    }
    value
}
