//! `[redact]`.

use regex::Regex;
use serde::Deserialize;
use serde::de::Deserializer;

use crate::text_list::read_each_text;

/// `[redact]`: patterns of secrets to redact in addition to the known ones.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct RedactTable {
    /// Regular expressions of secrets. A group named `keep` is not redacted.
    #[serde(deserialize_with = "expressions")]
    pub patterns: Vec<Regex>,
}

fn expressions<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Regex>, D::Error> {
    read_each_text(from, expression)
}

/// Compiles an expression. An expression that matches the empty text is refused, because it would match everywhere.
fn expression(pattern: &str) -> Result<Regex, String> {
    let regex = Regex::new(pattern).map_err(|error| {
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default();
        format!("pattern `{pattern}`: {}", last.trim_start_matches("error: "))
    })?;
    if regex.is_match("") {
        return Err(format!("pattern `{pattern}` matches the empty text"));
    }
    Ok(regex)
}
