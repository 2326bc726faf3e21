//! Checks of names of tools, hooks and MCP servers, with their places in the text.

use std::path::Path;

use layer0::name::{check_name, wire_name};
use serde::Deserialize;
use toml::Spanned;

use crate::ConfigError;
use crate::line::line_number;
use crate::parse::parse;

/// The checked names of a file.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Names {
    tools: Vec<Named>,
    hooks: Vec<Named>,
    mcp: Vec<Named>,
    /// Operators, each with its own names.
    operator: Vec<Self>,
}

#[derive(Deserialize)]
struct Named {
    name: Spanned<String>,
}

/// Refuses names that are invalid, duplicate, or the same for a provider.
pub(crate) fn check_names(path: &Path, text: &str) -> Result<(), ConfigError> {
    let Names { tools, hooks, mcp, operator } = parse(path, text)?;
    check(path, text, "MCP server", &mcp, str::to_owned)?;
    let own = Names { tools, hooks, ..Names::default() };
    std::iter::once(&own).chain(&operator).try_for_each(|Names { tools, hooks, .. }| {
        check(path, text, "tool", tools, |name| wire_name(name).into_owned())?;
        check(path, text, "hook", hooks, str::to_owned)
    })
}

fn check(
    path: &Path,
    text: &str,
    kind: &str,
    names: &[Named],
    mapped: impl Fn(&str) -> String,
) -> Result<(), ConfigError> {
    for (index, Named { name }) in names.iter().enumerate() {
        let refused = |what: String| ConfigError::new(path, what).in_text(text, name.span());
        let own = name.as_ref().as_str();
        check_name(own).map_err(|error| refused(format!("{kind}: {error}")))?;
        let same = |other: &&Named| mapped(other.name.as_ref()) == mapped(own);
        let Some(other) = names[..index].iter().find(same) else { continue };
        let line = line_number(text, &other.name.span());
        let there = other.name.as_ref().as_str();
        let what = match there == own {
            true => format!("there is already a {kind} named `{own}`, in line {line}"),
            false => format!(
                "{kind} `{own}` and {kind} `{there}`, in line {line}, are both `{}` to a provider",
                mapped(own)
            ),
        };
        return Err(refused(what).with_hint("give it another name"));
    }
    Ok(())
}
