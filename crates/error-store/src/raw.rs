//! Stored JSON: always valid, and returned byte for byte as it was stored.

use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Returns `text` as JSON: unchanged if it is a JSON object, array or string, else wrapped as `{"message": text}`.
#[must_use]
pub fn raw_json(text: &str) -> String {
    let is_json = text.trim_start().starts_with(['{', '[', '"'])
        && serde_json::from_str::<&RawValue>(text).is_ok();
    if is_json { text.to_owned() } else { json!({ "message": text }).to_string() }
}

/// Returns the text for a person or a model: the message of a wrapped text, else the JSON.
#[must_use]
pub fn readable(raw: &str) -> String {
    match serde_json::from_str(raw) {
        Ok(Value::String(text)) => text,
        Ok(Value::Object(fields)) => match fields.get("message") {
            Some(Value::String(text)) if fields.len() == 1 => text.clone(),
            _ => raw.to_owned(),
        },
        _ => raw.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Spec: S3
    #[test]
    fn json_is_kept_byte_for_byte() {
        let json = "{\"b\": 1,  \"a\":\t[1.0, 2e3]}";
        assert_eq!(raw_json(json), json);
        assert_eq!(raw_json("plain"), r#"{"message":"plain"}"#);
        assert_eq!(raw_json("{broken"), r#"{"message":"{broken"}"#);
        assert_eq!(raw_json("42"), r#"{"message":"42"}"#);
    }

    proptest! {
        /// Spec: S3
        #[test]
        fn any_text_survives(text in any::<String>()) {
            let raw = raw_json(&text);
            prop_assert!(serde_json::from_str::<Value>(&raw).is_ok());
            if !text.trim_start().starts_with(['{', '[', '"']) {
                prop_assert_eq!(readable(&raw), text);
            }
        }
    }
}
