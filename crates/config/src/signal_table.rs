//! `[[signals]]` of a scenario.

use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use toml::Spanned;

use crate::ConfigError;
use crate::checked::text;
use crate::parse::parse;

/// A signal to a running run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SignalTable {
    /// Time, in milliseconds from the start of the run.
    pub at_ms: u64,
    /// Name of the signal: `cancel`, `input`, or any other name.
    #[serde(deserialize_with = "text")]
    pub name: String,
    /// Payload of the signal.
    #[serde(default)]
    pub data: Value,
}

/// The checked tables of a file.
#[derive(Default, Deserialize)]
#[serde(default)]
struct SignalTables {
    signals: Vec<SignalKeys>,
}

#[derive(Deserialize)]
struct SignalKeys {
    name: Spanned<String>,
    data: Option<Spanned<Carried>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Carried {
    Text(String),
    Other(IgnoredAny),
}

/// Refuses an `input` without text for the model.
pub(crate) fn check_signals(path: &Path, text: &str) -> Result<(), ConfigError> {
    let SignalTables { signals } = parse(path, text)?;
    for SignalKeys { name, data } in signals {
        let says = |data: &Spanned<Carried>| matches!(data.as_ref(), Carried::Text(text) if !text.trim().is_empty());
        if name.as_ref() != "input" || data.as_ref().is_some_and(says) {
            continue;
        }
        let at = data.map_or_else(|| name.span(), |data| data.span());
        return Err(ConfigError::new(path, "`data` of an `input` must be a text")
            .in_text(text, at)
            .with_hint("write `data = \"…\"`, which the model is told"));
    }
    Ok(())
}
