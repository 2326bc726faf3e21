//! Values as a record has them.

use serde_json::Value;

/// Returns what a text in a record stands for: an object or a list where it is one, itself otherwise.
pub(super) fn value_of(text: &str) -> Value {
    let parsed = serde_json::from_str(text).ok();
    let compound = parsed.filter(|value: &Value| value.is_object() || value.is_array());
    compound.unwrap_or_else(|| Value::from(text))
}
