use std::borrow::Cow;
use std::time::Duration;

use backstop_redact::Redactor;
use layer0::error::StateError;
use layer0::state::{Expected, Scope, StateWrite};
use layer0::{JsonText, Timestamp};

use crate::words::searched_text;

/// Maximum length of a key, in bytes.
pub const MAX_KEY_BYTES: usize = 256;

/// Maximum length of a value, in bytes of JSON: 1 MiB.
pub const MAX_VALUE_BYTES: usize = 1024 * 1024;

/// A write that was checked and redacted. Every store creates its writes in this way.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PreparedWrite {
    /// Scope of the value.
    pub scope: Scope,
    /// Key of the value.
    pub key: String,
    /// The value, without secrets.
    pub value: JsonText,
    /// The text for word search.
    pub words: String,
    /// The required earlier value.
    pub expected: Expected,
    /// Time of the write.
    pub at: Timestamp,
    /// Time at which the value expires.
    pub expires_at: Option<Timestamp>,
}

impl PreparedWrite {
    /// Checks a write, and removes secrets from it.
    ///
    /// # Errors
    ///
    /// [`StateError::InvalidKey`], also for a scope or key that [`check_identity`] refuses; [`StateError::TooLarge`];
    /// [`StateError::Serialization`] for a value that is nested deeper than 100 levels.
    pub fn new(write: StateWrite, redactor: &Redactor, now: Timestamp) -> Result<Self, StateError> {
        let StateWrite { scope, key, value, expected, expires_after, .. } = write;
        check_key(&key)?;
        check_identity(&scope, &key, redactor)?;
        // A recorded text may be nested deeper than one that is taken from outside.
        let value = JsonText::parse(value.text()?.get())
            .map_err(|error| StateError::Serialization(error.to_string()))?;
        let value = redact(&value, redactor);
        let bytes = value.get().len();
        if bytes > MAX_VALUE_BYTES {
            return Err(StateError::too_large(bytes, MAX_VALUE_BYTES));
        }
        let words = searched_text(&key, &value.value());
        let expires_at = expires_after.map(|time: Duration| now.after(time));
        Ok(Self { scope, key, value, words, expected, at: now, expires_at })
    }
}

/// Refuses a scope or key that contains a secret of the process, because a redacted one would name another value. Text
/// that only looks like a secret is kept, as in every id.
///
/// # Errors
///
/// [`StateError::InvalidKey`], whose message contains neither of them.
pub fn check_identity(scope: &Scope, key: &str, redactor: &Redactor) -> Result<(), StateError> {
    let holds_secret = |text: &str| matches!(redactor.redact_held(text), Cow::Owned(_));
    let what = match () {
        () if holds_secret(key) => "it",
        () if redactor.holds_secrets() && holds_secret(&scope.to_string()) => "its scope",
        () => return Ok(()),
    };
    Err(StateError::InvalidKey(format!("{what} holds a secret of this process")))
}

/// Returns a text that sorts after all keys with a prefix, and before all later keys: stores compare keys byte by byte.
///
/// ```
/// use backstop_state::prefix_end;
///
/// assert_eq!(prefix_end("once/"), "once0");
/// assert!(prefix_end("once/") > "once/\u{10ffff}z".to_owned());
/// ```
#[must_use]
pub fn prefix_end(prefix: &str) -> String {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        if let Some(next) = (last..=char::MAX).nth(1) {
            end.push(next);
            return end;
        }
    }
    // Longer than any key.
    char::MAX.to_string().repeat(MAX_KEY_BYTES)
}

fn check_key(key: &str) -> Result<(), StateError> {
    let why = match key {
        "" => "it is empty".to_owned(),
        key if key.len() > MAX_KEY_BYTES => {
            format!("it has {} bytes, of at most {MAX_KEY_BYTES}", key.len())
        }
        key if key.chars().any(char::is_control) => "it has control characters".to_owned(),
        _ => return Ok(()),
    };
    Err(StateError::InvalidKey(why))
}

/// Removes secrets from every string and every name. Names that become equal are numbered, so that no field is
/// lost. Numbers stay as they were written: a counter is one.
pub(crate) fn redact(value: &JsonText, redactor: &Redactor) -> JsonText {
    value.map_strings_only(&mut |text| redactor.redact(text))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const KEY: &str = "held-secret-key-4711";

    fn redactor() -> Redactor {
        Redactor::new().with_secret(KEY).with_pattern("CUST-[0-9]{8}".parse().unwrap())
    }

    fn prepared(scope: Scope, key: &str, value: Value) -> Result<PreparedWrite, StateError> {
        PreparedWrite::new(StateWrite::new(scope, key, value), &redactor(), Timestamp::default())
    }

    /// Spec: K1
    #[test]
    fn keys_are_refused_or_kept_as_they_are() {
        for key in ["balance/CUST-00000001", "conn/postgres://u:secret1@db1/a"] {
            assert_eq!(prepared(Scope::Global, key, json!(1)).unwrap().key, key);
        }
        let of_key = Scope::custom("tenant", KEY).unwrap();
        for (scope, key) in [(Scope::Global, format!("of/{KEY}")), (of_key, "x".to_owned())] {
            let refused = prepared(scope, &key, json!(1)).unwrap_err();
            assert!(matches!(refused, StateError::InvalidKey(_)), "{refused:?}");
            assert!(!refused.to_string().contains(KEY), "{refused}");
        }
    }

    /// Spec: K1. No field is lost where names become alike.
    #[test]
    fn redacted_names_stay_apart() {
        let value = json!({ "CUST-00000001": 1, "CUST-00000002": 2, "CUST-00000003": CUST });
        const CUST: &str = "CUST-00000003";
        let value = prepared(Scope::Global, "k", value).unwrap().value;
        let expected = json!({ "[redacted]": 1, "[redacted] 2": 2, "[redacted] 3": "[redacted]" });
        assert_eq!(value, expected);
    }
}
