use std::borrow::Cow;

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
pub fn sendable_arguments(arguments: &Value) -> Cow<'_, Value> {
    match arguments {
        Value::Object(_) => Cow::Borrowed(arguments),
        other => Cow::Owned(json!({ "invalid_arguments": other })),
    }
}

/// Returns the id of a call in letters, digits, `_` and `-`, which is all that Anthropic and Bedrock
/// allow. Other providers, and ids that were made unique, have more.
///
/// ```
/// assert_eq!(provider_http::sendable_id("call-1~2"), "_call-1_2");
/// ```
#[must_use]
pub fn sendable_id(id: &str) -> Cow<'_, str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if id.chars().all(allowed) && !id.is_empty() {
        return Cow::Borrowed(id);
    }
    let replaced = id.chars().map(|c| if allowed(c) { c } else { '_' });
    Cow::Owned(std::iter::once('_').chain(replaced).collect())
}
