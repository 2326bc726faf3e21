//! Construction of a tool from `[[tools]]`.

use std::collections::{BTreeMap, BTreeSet};
use std::env::VarError;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backstop_builtin_tools::{
    CommandTool, FsList, FsRead, FsSearch, FsWrite, HttpFetch, MemoryForget, MemorySave,
    MemorySearch, Program, Shell,
};
use backstop_config::{AgentFile, ConfigError, ToolKind, ToolTable};
use backstop_state::MemoryEntries;
use backstop_tool::Tool;
use layer0::{JsonText, ToolSpec};
use serde_json::json;

use super::walls::{ProgramSurroundings, surroundings};
use crate::exit::CliError;
use crate::names::nearest;
use crate::output;

/// Environment variables of a program by default.
const VARIABLES: [&str; 3] = ["PATH", "HOME", "LANG"];
/// The built-in tools.
const BUILT_IN: [&str; 9] = [
    "fs_list",
    "fs_read",
    "fs_search",
    "fs_write",
    "http_fetch",
    "memory_forget",
    "memory_save",
    "memory_search",
    "shell",
];

/// Builds the tool of a table.
pub(crate) fn tool(
    table: &ToolTable,
    file: &AgentFile,
    path: &Path,
    folder: &Path,
    entries: &MemoryEntries,
) -> Result<Arc<dyn Tool>, CliError> {
    if let Some(refused) = refusals(table, path, folder).into_iter().next() {
        return Err(refused.into());
    }
    match table.kind {
        ToolKind::Command => command_tool(table, file, path, folder),
        _ => builtin_tool(table, file, path, folder, entries),
    }
}

/// Returns the mistakes of a tool's table, as far as its keys show them.
pub(super) fn refusals(table: &ToolTable, path: &Path, folder: &Path) -> Vec<ConfigError> {
    match table.kind {
        ToolKind::Command => command_refusals(table, path, folder),
        _ => builtin_refusals(table, path),
    }
}

fn command_refusals(table: &ToolTable, path: &Path, folder: &Path) -> Vec<ConfigError> {
    let mut refused = Vec::new();
    if table.command.as_ref().is_none_or(Vec::is_empty) {
        refused.push(missing("command", table, path));
    }
    if table.description.is_none() {
        refused.push(missing("description", table, path));
    }
    let cwd = table.cwd.as_ref().map_or_else(|| folder.to_owned(), |cwd| folder.join(cwd));
    if !cwd.is_dir() {
        let what = format!("tool `{}` runs in `{}`, which is no folder", table.name, cwd.display());
        refused.push(ConfigError::new(path, what));
    }
    refused
}

fn missing(key: &str, table: &ToolTable, path: &Path) -> ConfigError {
    ConfigError::new(path, format!("tool `{}` has no {key}", table.name))
        .with_hint(format!("add `{key} = …` to its [[tools]] table"))
}

fn builtin_refusals(table: &ToolTable, path: &Path) -> Vec<ConfigError> {
    let name = table.name.as_str();
    if !BUILT_IN.contains(&name) {
        let unknown = ConfigError::new(path, format!("there is no built-in tool `{name}`"));
        return vec![unknown.with_hint(of_unknown(name))];
    }
    let takes_time = matches!(name, "http_fetch" | "shell");
    let given: [(&str, bool); 11] = [
        ("description", table.description.is_some()),
        ("schema", table.schema.is_some()),
        ("output_schema", table.output_schema.is_some()),
        ("command", table.command.is_some()),
        ("env", table.env.is_some() && name != "shell"),
        ("timeout_ms", table.timeout_ms.is_some() && !takes_time),
        ("capabilities", table.capabilities.is_some()),
        ("idempotent", table.idempotent.is_some()),
        ("once", table.once.is_some()),
        ("exploratory", table.exploratory.is_some()),
        ("environment", table.environment.is_some() && !takes_time),
    ];
    let refused = given.iter().filter(|(_, given)| *given).map(|(key, _)| {
        let what = format!("tool `{name}` is built in; `{key}` does not apply to it");
        ConfigError::new(path, what).with_hint("take the key out")
    });
    refused.collect()
}

/// Returns the surroundings of a tool's program.
fn build_surroundings(
    table: &ToolTable,
    file: &AgentFile,
    path: &Path,
    folder: &Path,
) -> Result<Option<ProgramSurroundings>, CliError> {
    let program = table.command.as_ref().and_then(|command| command.first());
    let program = program.filter(|program| program.contains('/'));
    let cwd = table.cwd.as_deref().unwrap_or_else(|| Path::new("."));
    let program = program.map(|program| cwd.join(program));
    surroundings(table.environment.as_ref(), file, path, folder, program.as_deref())
}

/// Adds the walls and credentials of its surroundings to a program.
fn add_surroundings(program: Program, around: Option<ProgramSurroundings>) -> Program {
    let Some(around) = around else { return program };
    let credentials = around.credentials.into_iter();
    credentials.fold(program.within(around.walls), |program, (variable, credential)| {
        program.credential(variable, credential)
    })
}

fn command_tool(
    table: &ToolTable,
    file: &AgentFile,
    path: &Path,
    folder: &Path,
) -> Result<Arc<dyn Tool>, CliError> {
    let command = table.command.as_deref().unwrap_or_default();
    let (program, arguments) =
        command.split_first().ok_or_else(|| missing("command", table, path))?;
    let description = table.description.as_deref();
    let description = description.ok_or_else(|| missing("description", table, path))?;
    let schema = table.schema.clone().unwrap_or_else(|| json!({"type": "object"}));
    let mut spec = ToolSpec::new(table.name.as_str(), description, schema);
    spec.output_schema = table.output_schema.as_ref().map(JsonText::from);
    spec.capabilities =
        table.capabilities.clone().unwrap_or_else(|| vec!["process:spawn".to_owned()]);
    spec.idempotent = table.idempotent.unwrap_or_default();
    spec.exploratory = table.exploratory.unwrap_or_default();
    spec.once = table.once.as_deref().map(Into::into);
    spec.timeout = table.timeout_ms.map(Duration::from_millis);
    let cwd = table.cwd.as_ref().map_or_else(|| folder.to_owned(), |cwd| folder.join(cwd));
    let program = Program::new(program, arguments.iter().cloned(), cwd, variables(table));
    let around = build_surroundings(table, file, path, folder)?;
    Ok(Arc::new(CommandTool::new(spec, add_surroundings(program, around))))
}

fn builtin_tool(
    table: &ToolTable,
    file: &AgentFile,
    path: &Path,
    folder: &Path,
    entries: &MemoryEntries,
) -> Result<Arc<dyn Tool>, CliError> {
    let name = table.name.as_str();
    let timeout = table.timeout_ms.map(Duration::from_millis);
    let is_unattended = table.approval == Some(false);
    let base = table.cwd.as_ref().map_or_else(|| folder.to_owned(), |cwd| folder.join(cwd));
    Ok(match name {
        "fs_list" => Arc::new(FsList::new(base)),
        "fs_read" => {
            let max = usize::try_from(file.agent.limits().max_result_bytes).unwrap_or(usize::MAX);
            Arc::new(FsRead::new(base).max_answer_bytes(max))
        }
        "fs_search" => Arc::new(FsSearch::new(base)),
        "fs_write" => {
            let tool = FsWrite::new(base);
            Arc::new(if is_unattended { tool.without_approval() } else { tool })
        }
        "http_fetch" => {
            let tool = HttpFetch::new();
            let tool = match build_surroundings(table, file, path, folder)? {
                Some(around) => tool.within(around.walls),
                None => tool,
            };
            Arc::new(match timeout {
                Some(timeout) => tool.timeout(timeout),
                None => tool,
            })
        }
        "memory_forget" => Arc::new(MemoryForget::new(entries.clone())),
        "memory_save" => Arc::new(MemorySave::new(entries.clone())),
        "memory_search" => Arc::new(MemorySearch::new(entries.clone())),
        "shell" => {
            let around = build_surroundings(table, file, path, folder)?;
            let tool = Shell::new(add_surroundings(Program::shell(base, variables(table)), around));
            let tool = if is_unattended { tool.without_approval() } else { tool };
            Arc::new(match timeout {
                Some(timeout) => tool.timeout(timeout),
                None => tool,
            })
        }
        name => {
            return Err(ConfigError::new(path, format!("there is no built-in tool `{name}`"))
                .with_hint(of_unknown(name))
                .into());
        }
    })
}

/// Returns a hint with the nearest built-in tool.
fn of_unknown(name: &str) -> String {
    let all = format!("built-in tools: {}", BUILT_IN.join(", "));
    match nearest(name, &BUILT_IN) {
        Some(near) => format!("did you mean `{near}`? {all}"),
        None => format!("{all}; a program of yours is `kind = \"command\"`"),
    }
}

/// Returns the environment variables of a tool's program, with their values in this process.
pub(super) fn variables(table: &ToolTable) -> BTreeMap<String, String> {
    named_variables(table.env.as_deref())
}

/// Returns variables as [`variables`] does, for these names; the default ones for `None`.
pub(super) fn named_variables(names: Option<&[String]>) -> BTreeMap<String, String> {
    match names {
        Some(names) => read_variables(names.iter().map(String::as_str)),
        None => usual_variables(),
    }
}

/// Returns the default environment variables of a program.
pub(crate) fn usual_variables() -> BTreeMap<String, String> {
    read_variables(VARIABLES)
}

fn read_variables<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, String> {
    let held = |name: &str| match std::env::var(name) {
        Ok(value) => Some((name.to_owned(), value)),
        Err(VarError::NotPresent) => None,
        Err(VarError::NotUnicode(_)) => {
            warn_of_bytes(name);
            None
        }
    };
    names.into_iter().filter_map(held).collect()
}

/// Warns once about a variable that programs do not get, because its value is not UTF-8.
fn warn_of_bytes(name: &str) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if told.insert(name.to_owned()) {
        output::alert(&format!("warning: variable {name} is no UTF-8; programs do not get it"));
    }
}
