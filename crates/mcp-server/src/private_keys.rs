//! Keys of objects that serde_json reads as something else: `{"$serde_json::private::RawValue": "[1]"}` becomes `[1]`
//! (<https://github.com/serde-rs/json/issues/1148>). The types of `rmcp` are read by it.

use serde_json::Value;

const PREFIX: &str = "$serde_json::private::";

/// The reason why a message with such a key is refused.
pub(crate) const PRIVATE_KEY: &str =
    "the message cannot be read: a key begins with `$serde_json::private::`";

/// Returns whether a message has such a key.
pub(crate) fn has_private_key(json: &str) -> bool {
    // Any character of a key may be escaped.
    let may_have_one = json.contains(PREFIX) || json.contains("\\u00");
    may_have_one
        && layer0::read_value(json).map_or(json.contains(PREFIX), |value| names_one(&value))
}

fn names_one(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(names_one),
        Value::Object(fields) => {
            fields.iter().any(|(key, value)| key.starts_with(PREFIX) || names_one(value))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: E11
    #[test]
    fn private_keys_are_found_however_they_are_written() {
        for (json, expected) in [
            (r#"{"a":{"$serde_json::private::RawValue":"1"}}"#, true),
            (r#"[{"$serde_json::private::Number":"1"}]"#, true),
            (r#"{"\u0024serde_json::private::RawValue":"1"}"#, true),
            (r#"{"a":"$serde_json::private::RawValue"}"#, false),
            (r#"{"a":1.50,"b\u00e9":[2]}"#, false),
            ("", false),
        ] {
            assert_eq!(has_private_key(json), expected, "{json}");
        }
    }
}
