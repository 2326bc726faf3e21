//! Redaction of JSON values: of configuration, and of models and tools.

use std::borrow::Cow;

use layer0::JsonText;
use serde_json::Value;

use crate::ranges::REDACTED;
use crate::redactor::Redactor;
use crate::settings::{is_secret_name, is_secret_option, is_secret_value};

/// Keywords under which an object's keys are names of things and not of settings.
const SCHEMAS: [&str; 4] = ["properties", "$defs", "definitions", "patternProperties"];

impl Redactor {
    /// Redacts secrets in every text of a value, everything under names of secrets, such as
    /// `api_key`, and the values of options such as `--token`. Returns whether there were any.
    ///
    /// This is for configuration, where a name is enough: for text of errors, prefer [`Redactor::redact`].
    ///
    /// For configuration, where a name is enough: text of errors is better given to
    /// [`Redactor::redact`].
    pub fn redact_settings(&self, value: &mut Value) -> bool {
        within(self, value, false) | keys_and_numbers(self, value)
    }

    /// Redacts the secrets of the process in every text, name and number of a value. Names that
    /// become equal are numbered.
    ///
    /// ```
    /// use backstop_redact::Redactor;
    /// use layer0::JsonText;
    /// use serde_json::json;
    ///
    /// let redactor = Redactor::new().with_secret("held-secret-key");
    /// let shown = redactor.redact_held_json(JsonText::from(json!({ "a": ["held-secret-key", 1] })));
    /// assert_eq!(shown, json!({ "a": ["[redacted]", 1] }));
    /// ```
    #[must_use]
    pub fn redact_held_json(&self, value: JsonText) -> JsonText {
        if !self.holds_secrets() {
            return value;
        }
        let value = value.map_strings(&mut |text| self.redact_held(text));
        match self.redact_held(value.get()) {
            Cow::Borrowed(_) => value,
            Cow::Owned(text) => {
                serde_json::from_str(&text).unwrap_or_else(|_| JsonText::string(&text))
            }
        }
    }
}

/// Redacts secrets of the process in the names and numbers of a value.
fn keys_and_numbers(redactor: &Redactor, value: &mut Value) -> bool {
    let before = JsonText::from(&*value);
    let after = redactor.redact_held_json(before.clone());
    let any = after != before;
    if any {
        *value = after.value();
    }
    any
}

/// Redacts a value. `are_names` is whether the keys of this object are names and not settings.
fn within(redactor: &Redactor, value: &mut Value, are_names: bool) -> bool {
    match value {
        Value::String(text) => match redactor.redact(text) {
            Cow::Borrowed(_) => false,
            Cow::Owned(redacted) => {
                *text = redacted;
                true
            }
        },
        Value::Array(items) => {
            arguments(items)
                | items.iter_mut().fold(false, |any, item| within(redactor, item, false) | any)
        }
        Value::Object(fields) => {
            let named = pair(fields.get("name").or_else(|| fields.get("key")));
            let mut any = false;
            for (key, field) in fields {
                let is_secret = !are_names && (is_secret_name(key) || (named && key == "value"));
                any |= if is_secret {
                    leaves(field)
                } else {
                    within(redactor, field, SCHEMAS.contains(&key.as_str()))
                };
            }
            any
        }
        _ => false,
    }
}

/// Returns whether this is the name of a secret, as in `{ "name": "x-api-key", "value": "…" }`.
fn pair(name: Option<&Value>) -> bool {
    name.and_then(Value::as_str).is_some_and(is_secret_name)
}

/// Redacts the arguments of secret options.
fn arguments(items: &mut [Value]) -> bool {
    let mut any = false;
    for at in 1..items.len() {
        let is_option = items[at - 1].as_str().is_some_and(is_secret_option);
        let is_value = |value: &str| !value.starts_with("--") && is_secret_value(value);
        if is_option && items[at].as_str().is_some_and(is_value) {
            any |= leaves(&mut items[at]);
        }
    }
    any
}

/// Redacts every text and number.
fn leaves(value: &mut Value) -> bool {
    match value {
        Value::String(text) if is_secret_value(text) => {
            let was_there = text != REDACTED;
            REDACTED.clone_into(text);
            was_there
        }
        Value::Number(_) => {
            *value = Value::String(REDACTED.to_owned());
            true
        }
        Value::Array(items) => items.iter_mut().fold(false, |any, item| leaves(item) | any),
        Value::Object(fields) => fields.values_mut().fold(false, |any, field| leaves(field) | any),
        _ => false,
    }
}
