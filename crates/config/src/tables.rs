//! Checks for single tables that were written as a list.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use crate::ConfigError;

/// Single tables of an agent file.
const SINGLE: [&str; 16] = [
    "agent",
    "agent.budget",
    "agent.limits",
    "agent.policy",
    "agent.price",
    "agent.retry",
    "environment",
    "environment.credentials",
    "memory",
    "model",
    "model.extra_body",
    "model.headers",
    "model.price",
    "model.timeouts",
    "redact",
    "store",
];

/// Single tables of a scenario file.
const SINGLE_IN_SCENARIO: [&str; 11] = [
    "agent",
    "agent.budget",
    "agent.limits",
    "agent.policy",
    "agent.price",
    "agent.retry",
    "error_store",
    "expect",
    "log",
    "memory",
    "result_store",
];

/// Single tables of an operator of a scenario.
const SINGLE_IN_OPERATOR: [&str; 7] = [
    "agent",
    "agent.budget",
    "agent.limits",
    "agent.policy",
    "agent.price",
    "agent.retry",
    "memory",
];

/// Refuses `[[NAME]]` for a single table `[NAME]`: serde would read the list's elements as the table's fields in turn.
pub(crate) fn check_tables(path: &Path, text: &str) -> Result<(), ConfigError> {
    // Text that is no TOML is refused when it is parsed.
    let Ok(file) = DeTable::parse(text) else { return Ok(()) };
    let Some((name, at)) = find_list(file.get_ref(), &SINGLE) else { return Ok(()) };
    let hint = match name {
        "model" => {
            "write `[model]`; further endpoints of the model go into `[[model.pool]]`, and those that \
             are asked when it cannot answer into `[[model.fallback]]`"
                .to_owned()
        }
        name => format!("write `[{name}]`"),
    };
    let what = format!("`{name}` is a list; an agent file has one `[{name}]` table");
    Err(ConfigError::new(path, what).in_text(text, at).with_hint(hint))
}

/// Checks a scenario file as [`check_tables`] does an agent file.
pub(crate) fn check_scenario_tables(path: &Path, text: &str) -> Result<(), ConfigError> {
    let Ok(file) = DeTable::parse(text) else { return Ok(()) };
    let refused = |of: &str, name: &str, at| {
        let what = format!("`{name}` is a list; {of} has one table of this name");
        Err(ConfigError::new(path, what).in_text(text, at))
    };
    if let Some((name, at)) = find_list(file.get_ref(), &SINGLE_IN_SCENARIO) {
        let hint = format!("write `[{name}]`");
        return refused("a scenario", name, at).map_err(|error| error.with_hint(hint));
    }
    let operators = file.get_ref().get("operator").and_then(|value| value.get_ref().as_array());
    for operator in operators.into_iter().flatten() {
        let table = operator.get_ref().as_table();
        if let Some((name, at)) = table.and_then(|table| find_list(table, &SINGLE_IN_OPERATOR)) {
            let hint = format!("write `[operator.{name}]`");
            return refused("an operator", name, at).map_err(|error| error.with_hint(hint));
        }
    }
    Ok(())
}

/// Returns the first of these tables that is a list, with its place.
fn find_list(
    table: &DeTable<'_>,
    names: &[&'static str],
) -> Option<(&'static str, std::ops::Range<usize>)> {
    names.iter().find_map(|name| Some((*name, list(table, name)?)))
}

/// Returns the place of a list of this name.
fn list(file: &DeTable<'_>, name: &str) -> Option<std::ops::Range<usize>> {
    let mut table = file;
    let mut parts = name.split('.').peekable();
    while let Some(part) = parts.next() {
        let (key, value) = table.iter().find(|(key, _)| key.get_ref() == part)?;
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            DeValue::Array(values) if parts.peek().is_none() => {
                let first = values.first().map(toml::Spanned::span);
                return first.or_else(|| Some(key.span()));
            }
            _ => return None,
        }
    }
    None
}
