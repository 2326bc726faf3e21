//! Values in the form in which a record stores them.

use serde_json::Value;

/// Returns the value of a text in a record: an object or a list if the text is one in JSON, otherwise the text itself.
pub(super) fn parse_value(text: &str) -> Value {
    let parsed = serde_json::from_str(text).ok();
    let compound = parsed.filter(|value: &Value| value.is_object() || value.is_array());
    compound.unwrap_or_else(|| Value::from(text))
}
