//! All mistakes that show only when the agent is built. No key is needed.

use std::collections::BTreeSet;
use std::path::Path;

use backstop_config::{AgentFile, Checked, ConfigError, ModelTable};
use backstop_react::BuildError;
use backstop_redact::Redactor;
use backstop_tool::Toolset;

use super::credentials::without_commands;
use super::model::{Keys, check_cooldown, provider};
use super::usable::lacking;
use super::walls::surroundings;
use super::{folder_of, memory, registration, servers, tool};
use crate::exit::CliError;
use crate::store::{self, Origin};

/// A mistake in an agent file.
pub(crate) struct Mistake {
    pub(crate) line: Option<usize>,
    pub(crate) what: String,
    pub(crate) hint: Option<String>,
}

impl From<&ConfigError> for Mistake {
    fn from(error: &ConfigError) -> Self {
        let hint = error.hint().filter(|hint| !hint.is_empty()).map(ToOwned::to_owned);
        Self { line: error.line(), what: error.what().to_owned(), hint }
    }
}

impl Mistake {
    /// Returns the mistake of an error, without the name of the file in its text.
    fn of(error: &CliError, path: &Path, line: Option<usize>) -> Self {
        let text = error.to_string();
        let name = format!("{}: ", path.display());
        let what = text.strip_prefix(&name).unwrap_or(&text).to_owned();
        Self { line, what, hint: error.hint().map(ToOwned::to_owned) }
    }
}

/// Returns the mistakes of a file that parsing does not find. Tables with known mistakes are left out.
pub(crate) fn mistakes(checked: &Checked, path: &Path) -> Vec<Mistake> {
    mistakes_with(checked, path, Keys::Any)
}

/// Returns mistakes as [`mistakes`] does; a key that this process does not hold is one too.
pub(crate) fn held_mistakes(checked: &Checked, path: &Path) -> Vec<Mistake> {
    mistakes_with(checked, path, Keys::Held)
}

fn mistakes_with(checked: &Checked, path: &Path, keys: Keys) -> Vec<Mistake> {
    let Some(file) = &checked.file else { return Vec::new() };
    let folder = folder_of(path);
    let mut found = Vec::new();
    let mut note = |table: &str, index: usize, result: Result<(), CliError>| {
        let is_known = checked.is_mistaken(table, index);
        if let Some(error) = result.err().filter(|_| !is_known) {
            found.push(Mistake::of(&error, path, checked.line_of(table, index)));
        }
    };
    note("agent", 0, file.agent.instructions(path, folder).map(drop).map_err(Into::into));
    let model = |table: &ModelTable| {
        provider(&without_commands(table.clone()), path, folder, keys).map(drop)
    };
    for (place, pool) in file.model.pools().iter().enumerate() {
        for (entry, table) in pool.iter().enumerate() {
            let index = (place + entry).saturating_sub(1);
            let result = check_cooldown(table, pool, path).and_then(|()| model(table));
            note(table.header().trim_matches(['[', ']']), index, result);
        }
    }
    if let Some(url) = &file.store.url {
        note("store", 0, store::parse(url, &Origin::File(path)).and_then(|url| store::check(&url)));
    }
    if file.environment.is_some() {
        note("environment", 0, surroundings(None, file, path, folder, None).map(drop));
    }
    for (index, table) in file.mcp.iter().enumerate() {
        note("mcp", index, servers::check(table, file, path, keys));
    }
    found.extend(tool_mistakes(checked, path));
    // Invalid rules are found once for each program that they apply to.
    let mut said = BTreeSet::new();
    found.retain(|mistake| said.insert(mistake.what.clone()));
    if found.is_empty() && checked.mistakes.is_empty() {
        found.extend(together(file, path, checked));
    }
    found
}

/// Returns the mistakes of a file's tools.
pub(crate) fn tool_mistakes(checked: &Checked, path: &Path) -> Vec<Mistake> {
    let Some(file) = &checked.file else { return Vec::new() };
    let folder = folder_of(path);
    let entries = memory::entries(file, path, None, &Redactor::new());
    let mut found = Vec::new();
    for (index, table) in file.tools.iter().enumerate() {
        let errors: Vec<CliError> = match tool(table, file, path, folder, &entries) {
            Err(error) => vec![error],
            Ok(tool) => {
                let unfit = Toolset::new().add(tool).err();
                let unfit = unfit.map(|error| registration(&error, path));
                let lacking = lacking(table, file, path, folder).into_iter().map(Into::into);
                unfit.into_iter().chain(lacking).collect()
            }
        };
        if !checked.is_mistaken("tools", index) {
            let line = checked.line_of("tools", index);
            found.extend(errors.iter().map(|error| Mistake::of(error, path, line)));
        }
    }
    found
}

/// Returns the first conflict between parts of the file, such as equal names.
fn together(file: &AgentFile, path: &Path, checked: &Checked) -> Option<Mistake> {
    let agent = match super::agent_with(file, path, None, Keys::Any) {
        Ok(agent) => agent,
        Err(error) => return Some(Mistake::of(&error, path, None)),
    };
    let error = agent.build().err()?;
    let table = match &error {
        BuildError::Schema { .. } => Some("agent"),
        BuildError::UnknownPrice { .. } => Some("agent.budget"),
        BuildError::Setting(_) | BuildError::ToolChoice(_) | BuildError::ToolNotFound(_) => {
            Some("model")
        }
        _ => None,
    };
    let line = table.and_then(|table| checked.line_of(table, 0));
    Some(Mistake::of(&super::not_built(&error, path), path, line))
}
