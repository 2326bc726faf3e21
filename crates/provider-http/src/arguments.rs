use serde_json::{Map, Value, json};

/// Reads the arguments of a tool call as the model wrote them.
///
/// Nothing, or `null`, is no arguments. Text that is not JSON becomes a [`Value::String`], so that
/// the call is refused as invalid input and the model reads what it wrote.
///
/// ```
/// use provider_http::parse_arguments;
/// use serde_json::json;
///
/// assert_eq!(parse_arguments(r#"{"path": "a"}"#), json!({"path": "a"}));
/// assert_eq!(parse_arguments(""), json!({}));
/// assert_eq!(parse_arguments(r#"{"path": "#), json!(r#"{"path": "#));
/// ```
#[must_use]
pub fn parse_arguments(text: &str) -> Value {
    if text.trim().is_empty() {
        return Value::Object(Map::new());
    }
    match serde_json::from_str(text) {
        Ok(Value::Null) => Value::Object(Map::new()),
        Ok(value) => value,
        Err(_) => Value::String(text.to_owned()),
    }
}

/// Returns the arguments of an earlier call in a form every endpoint accepts when the conversation
/// is sent back: an object. What was not one is wrapped as `{"invalid_arguments": …}`; several
/// endpoints refuse the whole conversation otherwise.
#[must_use]
pub fn sendable_arguments(arguments: &Value) -> std::borrow::Cow<'_, Value> {
    match arguments {
        Value::Object(_) => std::borrow::Cow::Borrowed(arguments),
        other => std::borrow::Cow::Owned(json!({ "invalid_arguments": other })),
    }
}
