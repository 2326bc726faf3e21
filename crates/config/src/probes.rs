//! Checks of keys about probes of scripted tools, with their places in the text.

use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use crate::ConfigError;
use crate::parse::parse;

/// The checked tables of a file.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ProbeTables {
    tools: Vec<ProbeTool>,
    operator: Vec<ProbeOperator>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ProbeOperator {
    tools: Vec<ProbeTool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ProbeTool {
    probe: Option<String>,
    probe_output: Option<Spanned<IgnoredAny>>,
    probe_is_final: Option<Spanned<bool>>,
}

/// Refuses keys about a probe where there is none.
pub(crate) fn check_probes(path: &Path, text: &str) -> Result<(), ConfigError> {
    let ProbeTables { tools, operator } = parse(path, text)?;
    let below = operator.iter().flat_map(|operator| &operator.tools);
    for ProbeTool { probe, probe_output, probe_is_final } in tools.iter().chain(below) {
        let refused = |key: &str, span, goes_with: &str| {
            Err(ConfigError::goes_with(path, key, goes_with).in_text(text, span))
        };
        if let Some(output) = probe_output
            && probe.as_deref() != Some("happened")
        {
            return refused("probe_output", output.span(), "probe = \"happened\"");
        }
        if let (Some(is_final), None) = (probe_is_final, probe) {
            return refused("probe_is_final", is_final.span(), "probe");
        }
    }
    Ok(())
}
