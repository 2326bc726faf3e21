//! From an agent file to an agent.

mod bedrock;
mod model;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use builtin_tools::{CommandTool, FsRead, FsSearch};
use config::{AgentFile, ConfigError, ToolKind, ToolTable};
use layer0::message::{Image, MAX_IMAGE_BYTES};
use layer0::{JsonText, ToolSpec};
use provider::ModelSettings;
use react::{Agent, AgentBuilder};
use redact::Redactor;
use serde_json::{Value, json};
use tool::Tool;

use self::model::{Models, held_keys, models};
use crate::exit::CliError;
use crate::{output, store};

/// The variables a command tool sees unless the file says otherwise.
const VARIABLES: [&str; 3] = ["PATH", "HOME", "LANG"];

/// Puts the agent of a file together, as yet without a store.
pub(crate) fn agent(file: &AgentFile, path: &Path) -> Result<AgentBuilder, CliError> {
    agent_from(file, path, &|_| 0)
}

/// As [`agent`], where scripted models have given answers already: `answered` says how many, by what
/// the record calls them.
pub(crate) fn agent_from(
    file: &AgentFile,
    path: &Path,
    answered: &dyn Fn(&str) -> usize,
) -> Result<AgentBuilder, CliError> {
    let folder = folder_of(path);
    let Models { first, fallbacks, keys } = models(&file.model, path, folder, answered)?;
    let name = match &file.agent.name {
        Some(name) => name.clone(),
        None => {
            path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
        }
    };
    let redactor = redactor_of(keys, file);
    let mut agent = AgentBuilder::on(first)
        .name(name)
        .instructions(file.agent.instructions(path, folder)?)
        .limits(file.agent.limits())
        .budget(file.agent.budget())
        .retry(file.agent.retry())
        .settings(ModelSettings {
            max_output_tokens: file.model.max_output_tokens,
            temperature: file.model.temperature,
        })
        .stream(file.model.stream)
        .source(source(file, folder, &redactor))
        .redactor(redactor);
    for fallback in fallbacks {
        agent = agent.fallback_on(fallback);
    }
    if let Some(price) = file.agent.price() {
        agent = agent.price(price);
    }
    for name in &file.agent.limits.exploratory_tools {
        agent = agent.exploratory_tool(name.as_str());
    }
    for grant in file.agent.grants(folder) {
        agent = agent.grant(grant);
    }
    for table in &file.tools {
        agent = agent.shared_tool(tool(table, path, folder, file.agent.limits().max_result_bytes)?);
        if table.approval {
            agent = agent.require_approval(table.name.as_str());
        }
    }
    Ok(agent)
}

/// Returns what takes secrets out of what people say about a run: of the keys that its file names,
/// those that this process holds.
pub(crate) fn redactor(file: &AgentFile, path: &Path) -> Redactor {
    redactor_of(held_keys(&file.model, path), file)
}

fn redactor_of(keys: Vec<String>, file: &AgentFile) -> Redactor {
    let keys = keys.into_iter().chain(store::log_key().filter(|key| !key.is_empty()));
    let redactor = keys.fold(Redactor::new(), Redactor::with_secret);
    file.redact.patterns.iter().cloned().fold(redactor, Redactor::with_pattern)
}

/// Makes the agent.
pub(crate) fn build(agent: AgentBuilder, path: &Path) -> Result<Agent, CliError> {
    agent.build().map_err(|error| {
        let text = layer0::failure::Chain(&error).to_string();
        CliError::from(ConfigError::new(path, text))
    })
}

/// Returns what a later command needs to build the same agent: the file and the folder its relative
/// paths are below. Secrets are taken out; `redacted` says that the agent cannot be built without.
fn source(file: &AgentFile, folder: &Path, redactor: &Redactor) -> Value {
    let mut source = file.source().clone();
    // The input is in the record already, and not needed again.
    if let Some(agent) = source.get_mut("agent").and_then(Value::as_object_mut) {
        agent.remove("input");
    }
    let redacted = redactor.redact_settings(&mut source);
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    json!({ "folder": folder.display().to_string(), "agent_file": source, "redacted": redacted })
}

/// Returns the folder a file stands in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn tool(
    table: &ToolTable,
    path: &Path,
    folder: &Path,
    max_result_bytes: u64,
) -> Result<Arc<dyn Tool>, CliError> {
    match table.kind {
        ToolKind::Command => command_tool(table, path, folder),
        _ => builtin_tool(table, path, folder, max_result_bytes),
    }
}

fn command_tool(table: &ToolTable, path: &Path, folder: &Path) -> Result<Arc<dyn Tool>, CliError> {
    let missing = |what: &str| {
        ConfigError::new(path, format!("tool `{}` has no {what}", table.name))
            .with_hint(format!("add `{what} = …` to its [[tools]] table"))
    };
    let command = table.command.as_deref().unwrap_or_default();
    let (program, arguments) = command.split_first().ok_or_else(|| missing("command"))?;
    let description = table.description.as_deref().ok_or_else(|| missing("description"))?;
    let schema = table.schema.clone().unwrap_or_else(|| json!({"type": "object"}));
    let mut spec = ToolSpec::new(table.name.as_str(), description, schema);
    spec.output_schema = table.output_schema.as_ref().map(JsonText::from);
    spec.capabilities =
        table.capabilities.clone().unwrap_or_else(|| vec!["process:spawn".to_owned()]);
    spec.idempotent = table.idempotent.unwrap_or_default();
    spec.exploratory = table.exploratory.unwrap_or_default();
    spec.timeout = table.timeout_ms.map(Duration::from_millis);
    let allowed: Vec<&str> = match &table.env {
        Some(names) => names.iter().map(String::as_str).collect(),
        None => VARIABLES.to_vec(),
    };
    let variables: BTreeMap<String, String> = allowed
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
        .collect();
    let cwd = table.cwd.as_ref().map_or_else(|| folder.to_owned(), |cwd| folder.join(cwd));
    if !cwd.is_dir() {
        let what = format!("tool `{}` runs in `{}`, which is no folder", table.name, cwd.display());
        return Err(ConfigError::new(path, what).into());
    }
    Ok(Arc::new(CommandTool::new(spec, program, arguments.iter().cloned(), cwd, variables)))
}

fn builtin_tool(
    table: &ToolTable,
    path: &Path,
    folder: &Path,
    max_result_bytes: u64,
) -> Result<Arc<dyn Tool>, CliError> {
    let given: [(&str, bool); 9] = [
        ("description", table.description.is_some()),
        ("schema", table.schema.is_some()),
        ("output_schema", table.output_schema.is_some()),
        ("command", table.command.is_some()),
        ("env", table.env.is_some()),
        ("timeout_ms", table.timeout_ms.is_some()),
        ("capabilities", table.capabilities.is_some()),
        ("idempotent", table.idempotent.is_some()),
        ("exploratory", table.exploratory.is_some()),
    ];
    if let Some((key, _)) = given.iter().find(|(_, given)| *given) {
        let what = format!("tool `{}` is built in; `{key}` does not apply to it", table.name);
        return Err(ConfigError::new(path, what).with_hint("take the key out").into());
    }
    let base = table.cwd.as_ref().map_or_else(|| folder.to_owned(), |cwd| folder.join(cwd));
    match table.name.as_str() {
        "fs_read" => {
            let max = usize::try_from(max_result_bytes).unwrap_or(usize::MAX);
            Ok(Arc::new(FsRead::new(base).max_answer_bytes(max)))
        }
        "fs_search" => Ok(Arc::new(FsSearch::new(base))),
        name @ ("fs_list" | "fs_write" | "http_fetch" | "shell") => {
            Err(ConfigError::new(path, format!("built-in tool `{name}` is not supported yet"))
                .into())
        }
        name => Err(ConfigError::new(path, format!("there is no built-in tool `{name}`"))
            .with_hint("built-in tools: fs_read, fs_search")
            .into()),
    }
}

/// Reads what the agent is asked: the command line's text, standard input, a file, or the agent
/// file's own.
pub(crate) fn input(
    asked: Option<&str>,
    file: &AgentFile,
    path: &Path,
) -> Result<String, CliError> {
    match asked {
        Some("-") => output::input().map_err(|error| {
            CliError::usage(
                ConfigError::new("standard input", "cannot be taken").with_source(error),
            )
            .with_hint("--input - reads UTF-8 text of at most 16 MiB")
        }),
        Some(text) => match text.strip_prefix('@') {
            Some(name) => config::read_text(Path::new(name)).map_err(|error| {
                CliError::from(error).with_hint(
                    "@FILE reads a regular file of UTF-8 text; for a pipe, use `--input -`",
                )
            }),
            None => Ok(text.to_owned()),
        },
        None => file.agent.input.clone().ok_or_else(|| {
            ConfigError::new(path, "there is nothing to ask")
                .with_hint("give --input TEXT, or `input = \"…\"` in [agent]")
                .into()
        }),
    }
}

/// Returns the tools' arguments as the log shows them, for a progress line.
pub(crate) fn brief(arguments: &JsonText) -> String {
    let text = arguments.get();
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Reads an image.
pub(crate) fn image(path: &Path) -> Result<Image, CliError> {
    let bytes = config::read_bytes(path, MAX_IMAGE_BYTES)?;
    Image::from_bytes(&bytes)
        .map_err(|error| CliError::usage(ConfigError::new(path, error.to_string())))
}
