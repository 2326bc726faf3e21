//! Deserialization of TOML text, with errors that help people.

use std::ops::Range;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::{ConfigError, hints};

/// Beginnings of messages that do not name their key.
const NEEDS_KEY: [&str; 6] = [
    "invalid ",
    "duplicate key",
    "floating-point ",
    "JSON number ",
    "string values ",
    "unknown variant",
];

/// Beginnings of the hint that a reader of a value puts after a semicolon.
const ADVICE: [&str; 3] = ["did you mean ", "take ", "write "];

pub(crate) fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| of_toml(path, text, &error))
}

/// Converts an error of the TOML reader to a message, a place and a hint.
pub(crate) fn of_toml(path: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
    let message = error.message().trim();
    let span = error.span();
    let key = span.as_ref().and_then(|span| key_at(text, span));
    let (what, hint) = match unknown(message) {
        Some((what, known)) => {
            let name = what.split('`').nth(1).unwrap_or_default();
            (format!("unknown {what}"), hints::of_unknown(text, name, &known, span.as_ref()))
        }
        None => {
            let what = in_words(message);
            // The hint is separate from the message.
            let advice = ADVICE
                .iter()
                .find_map(|begin| Some((begin, what.split_once(&format!("; {begin}"))?)));
            match advice {
                Some((begin, (what, rest))) => (what.to_owned(), Some(format!("{begin}{rest}"))),
                None => {
                    let hint = hints::of_value(text, &what, key, span.as_ref());
                    (what, hint)
                }
            }
        }
    };
    let what = match key {
        Some(key) if what.starts_with("must ") => format!("`{key}` {what}"),
        Some(key) if NEEDS_KEY.iter().any(|begin| what.starts_with(begin)) => {
            format!("`{key}`: {what}")
        }
        _ => what,
    };
    let mut config = ConfigError::new(path, what);
    if let Some(span) = span {
        config = config.in_text(text, span);
    }
    match hint {
        Some(hint) => config.with_hint(hint),
        None => config,
    }
}

/// Returns the key whose name or value begins at a place in a text.
fn key_at<'a>(text: &'a str, span: &Range<usize>) -> Option<&'a str> {
    let is_in_key = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let (before, behind) = text.split_at_checked(span.start)?;
    // A table is named by its header.
    if let Some(header) = behind.strip_prefix('[') {
        let header = header.trim_start_matches('[').split([']', '\n']).next()?.trim();
        let is_header = before.is_empty() || before.ends_with('\n');
        if is_header && !header.is_empty() {
            return Some(header);
        }
    }
    let name = behind.split(|c| !is_in_key(c)).next().unwrap_or_default();
    if !name.is_empty() && behind[name.len()..].trim_start().starts_with('=') {
        return Some(name);
    }
    // For a value, or an element of a list, it is the last key before it.
    before.rmatch_indices('=').find_map(|(at, _)| {
        let before = before[..at].trim_end();
        let name = before.rsplit(|c| !is_in_key(c)).next()?;
        Some(name).filter(|name| !name.is_empty())
    })
}

/// Splits serde's "unknown field `x`, expected one of `a`, `b`" into the field and the known names.
fn unknown(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest = message.strip_prefix("unknown ")?;
    let (what, known) = rest.split_once(", ")?;
    let known = known.split('`').skip(1).step_by(2).collect();
    Some((what, known))
}

/// Replaces Rust types in a message by the terms of TOML.
fn in_words(message: &str) -> String {
    let Some((given, expected)) = message.split_once(", expected ") else {
        return message.to_owned();
    };
    if given.starts_with("string values ") {
        return given.to_owned();
    }
    let expected = match expected {
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "a table",
        name if name.starts_with("struct ") => "a table",
        "i32" | "i64" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        "a nonzero u64" => "a whole number from 1 on",
        other => other,
    };
    format!("{given}, expected {expected}")
}
