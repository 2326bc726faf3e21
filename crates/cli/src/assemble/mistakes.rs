//! All mistakes that show only when the agent is built. No key is needed.

use std::collections::BTreeSet;
use std::path::Path;

use backstop_config::{AgentFile, CheckedFile, ConfigError, ToolTable};
use backstop_react::BuildError;
use backstop_redact::Redactor;
use backstop_tool::Toolset;

use super::credentials::without_commands;
use super::model::{KeyRequirement, check_cooldown, refusals};
use super::usable::lacking;
use super::walls::surroundings;
use super::{memory, parent_folder, registration, servers, tool};
use crate::exit::CliError;
use crate::store::{self, StoreUrlSource};

/// A mistake in an agent file.
pub(crate) struct AgentFileMistake {
    pub(crate) line: Option<usize>,
    pub(crate) what: String,
    pub(crate) hint: Option<String>,
}

impl From<&ConfigError> for AgentFileMistake {
    fn from(error: &ConfigError) -> Self {
        let hint = error.hint().filter(|hint| !hint.is_empty()).map(ToOwned::to_owned);
        Self { line: error.line(), what: error.what().to_owned(), hint }
    }
}

impl AgentFileMistake {
    /// Returns the mistake of an error, without the name of the file in its text.
    fn from_error(error: &CliError, path: &Path, line: Option<usize>) -> Self {
        let text = error.to_string();
        let name = format!("{}: ", path.display());
        let what = text.strip_prefix(&name).unwrap_or(&text).to_owned();
        Self { line, what, hint: error.hint().map(ToOwned::to_owned) }
    }
}

/// Returns the mistakes of a file that parsing does not find.
pub(crate) fn mistakes(checked: &CheckedFile, path: &Path) -> Vec<AgentFileMistake> {
    mistakes_with(checked, path, KeyRequirement::Any)
}

/// Returns mistakes as [`mistakes`] does; a key that this process does not hold is one too.
pub(crate) fn held_mistakes(checked: &CheckedFile, path: &Path) -> Vec<AgentFileMistake> {
    mistakes_with(checked, path, KeyRequirement::Held)
}

fn mistakes_with(
    checked: &CheckedFile,
    path: &Path,
    keys: KeyRequirement,
) -> Vec<AgentFileMistake> {
    let Some(file) = &checked.file else { return Vec::new() };
    let folder = parent_folder(path);
    let mut found = MistakeList { checked, path, mistakes: Vec::new() };
    found.note("agent", 0, file.agent.instructions(path, folder).err().map(Into::into));
    for (place, pool) in file.model.pools().iter().enumerate() {
        for (entry, table) in pool.iter().enumerate() {
            let index = (place + entry).saturating_sub(1);
            let table_name = table.header().trim_matches(['[', ']']);
            found.note(table_name, index, check_cooldown(table, pool, path).err());
            let bare = without_commands(table.clone());
            found.note(table_name, index, refusals(&bare, path, folder, keys));
        }
    }
    if let Some(url) = &file.store.url {
        let parsed =
            store::parse(url, &StoreUrlSource::File(path)).and_then(|url| store::check(&url));
        found.note("store", 0, parsed.err());
    }
    if file.environment.is_some() {
        found.note("environment", 0, surroundings(None, file, path, folder, None).err());
    }
    for (index, table) in file.mcp.iter().enumerate() {
        found.note("mcp", index, servers::check(table, file, path, keys).err());
    }
    found.mistakes.extend(tool_mistakes(checked, path));
    found.note_whole(file);
    // Invalid rules are found once for each program that they apply to.
    let mut said = BTreeSet::new();
    found.mistakes.retain(|mistake| said.insert(mistake.what.clone()));
    found.mistakes
}

/// Returns the mistakes of a file's tools.
pub(crate) fn tool_mistakes(checked: &CheckedFile, path: &Path) -> Vec<AgentFileMistake> {
    let Some(file) = &checked.file else { return Vec::new() };
    let folder = parent_folder(path);
    let entries = memory::entries(file, path, None, &Redactor::new());
    let mut found = MistakeList { checked, path, mistakes: Vec::new() };
    for (index, table) in file.tools.iter().enumerate() {
        let refused = tool::refusals(table, path, folder);
        // The parts of a refused tool are not checked.
        let unfit = refused.is_empty().then(|| {
            let parts = tool_parts(table);
            let unfit = parts.into_iter().filter_map(|part| {
                let tool = tool(&part, file, path, folder, &entries);
                let tool = tool.and_then(|tool| {
                    Toolset::new().add(tool).map_err(|error| registration(&error, path))
                });
                tool.err()
            });
            unfit.collect::<Vec<_>>()
        });
        found.note("tools", index, refused.into_iter().map(Into::into));
        found.note("tools", index, unfit.into_iter().flatten());
        found.note("tools", index, lacking(table, file, path, folder).into_iter().map(Into::into));
    }
    found.mistakes
}

/// Returns a tool's table with one of its schemas, and with the other: each may be invalid.
fn tool_parts(table: &ToolTable) -> Vec<ToolTable> {
    match table.schema.is_some() && table.output_schema.is_some() {
        true => {
            let (mut input, mut output) = (table.clone(), table.clone());
            (input.output_schema, output.schema) = (None, None);
            vec![input, output]
        }
        false => vec![table.clone()],
    }
}

/// The mistakes found in a file.
struct MistakeList<'c> {
    checked: &'c CheckedFile,
    path: &'c Path,
    mistakes: Vec<AgentFileMistake>,
}

impl MistakeList<'_> {
    /// Notes the errors of a table, each once. An error that may follow from a mistake of the text is left out.
    fn note(&mut self, table: &str, index: usize, errors: impl IntoIterator<Item = CliError>) {
        let line = self.checked.find_table_line(table, index);
        for error in errors {
            let mut mistake = AgentFileMistake::from_error(&error, self.path, line);
            let is_known =
                self.mistakes.iter().any(|it| (it.line, &it.what) == (line, &mistake.what));
            if is_known || self.checked.may_explain(table, index, &mistake.what) {
                continue;
            }
            mistake.what = self.checked.as_written(&mistake.what);
            self.mistakes.push(mistake);
        }
    }

    /// Notes the first conflict between parts of the file, such as equal names.
    fn note_whole(&mut self, file: &AgentFile) {
        let agent = match super::agent_with(file, self.path, None, KeyRequirement::Any) {
            Ok(agent) => agent,
            // It is that of a table, unless nothing else is wrong.
            Err(error) if self.mistakes.is_empty() && self.checked.mistakes.is_empty() => {
                return self.mistakes.push(AgentFileMistake::from_error(&error, self.path, None));
            }
            Err(_) => return,
        };
        let Some(error) = agent.build().err() else { return };
        let table = match &error {
            BuildError::Schema { .. } => "agent",
            BuildError::UnknownPrice { .. } => "agent.budget",
            BuildError::Setting(_) | BuildError::ToolChoice(_) | BuildError::ToolNotFound(_) => {
                "model"
            }
            // It is a table's own.
            _ if !self.mistakes.is_empty() => return,
            _ => "",
        };
        self.note(table, 0, [super::not_built(&error, self.path)]);
    }
}
