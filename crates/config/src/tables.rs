//! Tables that there is one of, and that were written as a list.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use crate::ConfigError;

/// The tables of an agent file that there is one of.
const SINGLE: [&str; 13] = [
    "agent",
    "agent.budget",
    "agent.limits",
    "agent.policy",
    "agent.price",
    "agent.retry",
    "model",
    "model.extra_body",
    "model.headers",
    "model.price",
    "model.timeouts",
    "redact",
    "store",
];

/// Refuses `[[NAME]]` where there is one `[NAME]`: serde would take the list for the table's values in turn.
pub(crate) fn check_tables(path: &Path, text: &str) -> Result<(), ConfigError> {
    // What is no TOML is refused when it is read.
    let Ok(file) = DeTable::parse(text) else { return Ok(()) };
    let listed = SINGLE.into_iter().find_map(|name| Some((name, list(file.get_ref(), name)?)));
    let Some((name, at)) = listed else { return Ok(()) };
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

/// Returns where a list of this name begins.
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
