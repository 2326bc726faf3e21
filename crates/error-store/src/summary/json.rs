//! Messages of errors that are JSON.

use std::collections::BTreeMap;

use layer0::read_value;
use serde_json::Value;
use serde_json::value::RawValue;

use super::line::{says_less, telling_line};

/// The fields that hold a message, best first.
const FIELDS: [&str; 7] =
    ["message", "errorMessage", "error_message", "error", "errors", "detail", "title"];

/// Returns the message of a JSON object that has more than that, or of the first of its errors.
pub(super) fn json_message(error: &str) -> Option<String> {
    if error.trim_start().starts_with('[') {
        let all = read_value(error).ok()?;
        return all.as_array()?.iter().filter(|value| value.is_object()).find_map(message_in);
    }
    if !error.trim_start().starts_with('{') {
        return None;
    }
    // The fields next to the message may be long and are not read.
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(error).ok()?;
    let value = |name: &str| read_value(fields.get(name)?.get()).ok();
    let message = FIELDS.iter().find_map(|name| message_in(&value(name)?))?;
    // OAuth 2.0 (RFC 6749, section 5.2) has a word and its description.
    if let Some(Value::String(description)) = value("error_description") {
        return Some(format!("{message}: {description}"));
    }
    // The other output of a command may describe more.
    match value("output") {
        Some(Value::String(output)) => Some(fuller(message, output)),
        _ => Some(message),
    }
}

/// Returns the one of two texts that describes the failure, the first if both do.
fn fuller(message: String, output: String) -> String {
    let is_less = says_less(&telling_line(&message), &telling_line(&output));
    if is_less { output } else { message }
}

/// Returns the message that a value is or has.
fn message_in(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Object(inner) => {
            let message = inner.get("message").or_else(|| inner.get("msg"))?;
            Some(message.as_str()?.to_owned())
        }
        Value::Array(all) => all.iter().find_map(message_in),
        _ => None,
    }
}
