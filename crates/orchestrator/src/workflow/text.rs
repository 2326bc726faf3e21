//! Values as a record has them.

use std::sync::Arc;

use backstop_event_log::text_digest;
use layer0::text::plain;
use serde_json::Value;

/// Returns what a text in a record stands for: an object or a list where it is one, itself otherwise.
pub(super) fn value_of(text: &str) -> Value {
    let parsed = serde_json::from_str(text).ok();
    let compound = parsed.filter(|value: &Value| value.is_object() || value.is_array());
    compound.unwrap_or_else(|| Value::from(text))
}

/// Returns the SHA-256 of what a step is asked, in hex.
pub(super) fn input_digest(input: &Value) -> Arc<str> {
    text_digest(&plain(input)).into()
}
