//! Keys that `serde_json` reserves for itself.

use std::sync::atomic::{AtomicBool, Ordering};

use jiter::JsonValue;

/// Whether bodies with such keys are accepted, and whether any was sent.
///
/// A raw value that is written through another type becomes an object with such a key, which a reader of `serde_json`
/// hides again. Bodies are therefore read with another library.
#[derive(Debug, Default)]
pub(super) struct PrivateKeys {
    are_taken: AtomicBool,
    were_sent: AtomicBool,
}

impl PrivateKeys {
    pub(super) fn take(&self) {
        self.are_taken.store(true, Ordering::Relaxed);
    }

    /// Returns whether a body was sent that is not accepted.
    pub(super) fn were_sent(&self) -> bool {
        self.were_sent.load(Ordering::Relaxed)
    }

    /// Returns whether a body is to be refused, and records that.
    pub(super) fn refuse(&self, body: &[u8]) -> bool {
        let refused = !self.are_taken.load(Ordering::Relaxed) && has_private_key(body);
        if refused {
            self.were_sent.store(true, Ordering::Relaxed);
        }
        refused
    }
}

fn has_private_key(body: &[u8]) -> bool {
    let is_named = body.windows(11).any(|window| window == b"$serde_json");
    is_named && JsonValue::parse(body, false).is_ok_and(|value| has_key(&value))
}

fn has_key(value: &JsonValue<'_>) -> bool {
    match value {
        JsonValue::Array(items) => items.iter().any(has_key),
        JsonValue::Object(fields) => {
            fields.iter().any(|(name, value)| name.contains("$serde_json") || has_key(value))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_from_texts() {
        let key = br#"{"a":[{"$serde_json::private::RawValue":"1"}]}"#;
        let text = br#"{"a":"{\"$serde_json::private::RawValue\":1}"}"#;
        assert!(has_private_key(key) && !has_private_key(text));
    }
}
