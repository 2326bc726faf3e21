use std::time::Duration;

use backstop_redact::Redactor;
use layer0::error::StateError;
use layer0::state::{Expected, Scope, StateWrite};
use layer0::{JsonText, Timestamp, is_deeper};
use serde_json::Value;

use crate::words::searched_text;

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 256;

/// The longest value, in bytes of JSON: 1 MiB.
pub const MAX_VALUE_BYTES: usize = 1024 * 1024;

/// How deep a value may be nested: `serde_json` reads no more than 128 levels.
const MAX_DEPTH: usize = 100;

/// A write as it is stored: checked and redacted. Every store makes its writes so.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PreparedWrite {
    /// Where.
    pub scope: Scope,
    /// Under which key.
    pub key: String,
    /// The value, without secrets.
    pub value: Value,
    /// The value as JSON.
    pub json: JsonText,
    /// The text in which words are searched.
    pub words: String,
    /// What has to be there already.
    pub expected: Expected,
    /// When it is written.
    pub at: Timestamp,
    /// When it is gone by itself.
    pub expires_at: Option<Timestamp>,
}

impl PreparedWrite {
    /// Checks a write, and takes the secrets out of it.
    ///
    /// # Errors
    ///
    /// [`StateError::InvalidKey`], [`StateError::TooLarge`]; [`StateError::Serialization`] for a value that is
    /// nested too deep to be read again.
    pub fn new(write: StateWrite, redactor: &Redactor, now: Timestamp) -> Result<Self, StateError> {
        let StateWrite { scope, key, mut value, expected, expires_after, .. } = write;
        check_key(&key)?;
        if is_deeper(&value, MAX_DEPTH) {
            let why = format!("a value is nested deeper than {MAX_DEPTH} levels");
            return Err(StateError::Serialization(why));
        }
        let key = redactor.redact(&key).into_owned();
        redact(&mut value, redactor);
        let json = JsonText::from(&value);
        let bytes = json.get().len();
        if bytes > MAX_VALUE_BYTES {
            return Err(StateError::too_large(bytes, MAX_VALUE_BYTES));
        }
        let words = searched_text(&key, &value);
        let expires_at = expires_after.map(|time: Duration| now.after(time));
        Ok(Self { scope, key, value, json, words, expected, at: now, expires_at })
    }
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

/// Takes the secrets out of every string and every name.
fn redact(value: &mut Value, redactor: &Redactor) {
    match value {
        Value::String(text) => *text = redactor.redact(text).into_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| redact(item, redactor)),
        Value::Object(fields) => {
            *fields = std::mem::take(fields)
                .into_iter()
                .map(|(name, mut field)| {
                    redact(&mut field, redactor);
                    (redactor.redact(&name).into_owned(), field)
                })
                .collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
