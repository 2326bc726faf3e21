//! `[redact]`.

use regex::Regex;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// `[redact]`: what is taken out of text beside what is known.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct RedactTable {
    /// What secrets look like, as regular expressions. A group named `keep` stays.
    #[serde(deserialize_with = "expressions")]
    pub patterns: Vec<Regex>,
}

fn expressions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Regex>, D::Error> {
    let patterns = Vec::<String>::deserialize(deserializer)?;
    patterns.iter().map(|pattern| expression(pattern).map_err(D::Error::custom)).collect()
}

/// Compiles an expression; one that matches nothing at all would match everywhere.
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
