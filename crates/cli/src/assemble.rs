//! Construction of an agent from its file.

mod bedrock;
mod contract;
mod credentials;
mod memory;
mod mistakes;
mod model;
mod script;
mod secrets;
mod servers;
mod tool;
mod usable;
mod walls;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::store::AnyDatabase;
use backstop_config::{AgentFile, ConfigError};
use backstop_react::{Agent, AgentBuilder, BuildError};
use backstop_redact::Redactor;
use backstop_tool::{ToolNotFound, ToolRegistrationError};
use layer0::message::{Image, MAX_IMAGE_BYTES};
use serde_json::{Value, json};

pub(crate) use self::credentials::{
    fetch_credentials, read_secret, resolve_text, skip_credential_commands,
};
pub(crate) use self::memory::entries;
pub(crate) use self::mistakes::{AgentFileMistake, held_mistakes, mistakes, tool_mistakes};
use self::model::{KeyRequirement, Models, Other, models};
pub(crate) use self::model::{build_provider, key_variables, usual_variable};
pub(crate) use self::secrets::hold_all;
use self::secrets::hold_file;
pub(crate) use self::servers::{Servers, not_connected, server};
pub(crate) use self::tool::{tool, usual_variables};
pub(crate) use self::walls::share_written;
use crate::exit::CliError;
pub(crate) use crate::folder::parent_folder;
use crate::folder::recordable;
use crate::names::nearest;
use crate::output;
use crate::secrets::build_process_redactor;
pub(crate) use crate::secrets::hold;

/// Hint for a cost budget without a price.
const PRICE_HINT: &str = "add `[agent.price]` with `input_per_mtok` and `output_per_mtok`, or `price` to each \
     model that has none, or take `max_cost_usd` and `[[limit]]` out";

/// Hint for a required tool call of an agent without tools.
const TOOL_CHOICE_HINT: &str = "add a `[[tools]]` table, or take `tool_choice` out";

/// Values of `tool_choice` other than the name of a tool.
const TOOL_CHOICES: [&str; 3] = ["auto", "none", "required"];

/// Hint for an invalid schema of a tool.
const SCHEMA_HINT: &str = "correct `schema` in its [[tools]] table, or `output_schema`; both are JSON Schema, such as \
     `{ type = \"object\", properties = { n = { type = \"integer\" } } }`";

/// Hint for an invalid schema of an agent.
const AGENT_SCHEMA_HINT: &str = "correct `input_schema` or `output_schema` in [agent]; both are JSON Schema, such as \
     `{ type = \"object\", properties = { n = { type = \"integer\" } } }`";

/// Returns the builder of a file's agent, still without its stores. Its memory is in the database; without a database,
/// in this process.
pub(crate) fn agent(
    file: &AgentFile,
    path: &Path,
    database: Option<&AnyDatabase>,
) -> Result<AgentBuilder, CliError> {
    agent_with(file, path, database, KeyRequirement::Held)
}

fn agent_with(
    file: &AgentFile,
    path: &Path,
    database: Option<&AnyDatabase>,
    keys: KeyRequirement,
) -> Result<AgentBuilder, CliError> {
    let folder = parent_folder(path);
    let has_price = file.agent.price.is_some();
    let log = database.map(AnyDatabase::log);
    let Models { first, others, keys } =
        models(&file.model, has_price, path, folder, log.as_ref(), keys)?;
    hold(keys);
    let redactor = redactor(file, path);
    let state = memory::state(database, &redactor);
    let entries = memory::entries_in(Arc::clone(&state), file, path);
    let mut agent = AgentBuilder::on(first)
        .name(name(file, path))
        .instructions(file.agent.instructions(path, folder)?)
        .limits(file.agent.limits())
        .budget(file.agent.budget())
        .retry(file.agent.retry())
        .settings(file.model.settings())
        .stream(file.model.stream)
        .source(source(file, folder, &redactor))
        .redactor(redactor)
        .shared_state_store(state);
    for other in others {
        agent = match other {
            Other::Beside(upstream) => agent.endpoint(upstream),
            Other::Fallback(upstream) => agent.fallback_on(upstream),
        };
    }
    if let Some(price) = file.agent.price() {
        agent = agent.price(price);
    }
    if let Some(schema) = &file.agent.input_schema {
        agent = agent.input_schema(schema.clone());
    }
    if let Some(schema) = &file.agent.output_schema {
        agent = agent.output_schema(schema.clone());
    }
    for table in &file.limit {
        agent = agent.spend_limit(table.limit());
    }
    for name in &file.agent.limits.exploratory_tools {
        agent = agent.exploratory_tool(name.as_str());
    }
    for grant in file.agent.grants(folder) {
        agent = agent.grant(grant);
    }
    agent = memory::remembering(agent, file, &entries);
    for table in &file.tools {
        agent = agent.shared_tool(tool(table, file, path, folder, &entries)?);
        if table.approval == Some(true) {
            agent = agent.require_approval(table.name.as_str());
        }
        if let Some(ms) = table.expires_after_ms {
            agent = agent.approval_expires_after(&table.name, Duration::from_millis(ms));
        }
        if !table.approvers.is_empty() {
            agent = agent.approvers(&table.name, table.approvers.names());
        }
        if let Some(schema) = &table.approval_schema {
            agent = agent.approval_asks(&table.name, schema.clone());
        }
    }
    if let Some(contract) = contract::agent(file) {
        agent = agent.contract(contract);
    }
    agent = contract::tools(file).fold(agent, |agent, (tool, it)| agent.tool_contract(tool, it));
    for lacking in walls::not_enforced(file, path, folder)? {
        agent = agent.warning(lacking);
    }
    Ok(agent)
}

/// Returns the name of a file's agent; the stem of the file name by default.
pub(crate) fn name(file: &AgentFile, path: &Path) -> String {
    let stem = || path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    file.agent.name.clone().unwrap_or_else(stem)
}

/// Returns a redactor for texts of an agent, and of people about its runs. It knows all secrets of this process, with the
/// keys and credentials that the file names.
pub(crate) fn redactor(file: &AgentFile, path: &Path) -> Redactor {
    hold_file(file, path);
    file.redact.patterns.iter().cloned().fold(build_process_redactor(), Redactor::with_pattern)
}

/// Builds the agent.
pub(crate) fn build(agent: AgentBuilder, path: &Path) -> Result<Agent, CliError> {
    agent.build().map_err(|error| not_built(&error, path))
}

/// Converts an error of the builder to one about the file, with a hint.
fn not_built(error: &BuildError, path: &Path) -> CliError {
    let config = ConfigError::new(path, layer0::failure::Chain(error).to_string());
    CliError::from(match error {
        BuildError::Setting(setting) => config.with_hint(setting.hint()),
        BuildError::Tool(error) => return registration(error, path),
        BuildError::ToolChoice(_) => config.with_hint(TOOL_CHOICE_HINT),
        // In a file, only `tool_choice` can name a missing tool.
        BuildError::ToolNotFound(missing) => {
            ConfigError::new(path, format!("`tool_choice`: {missing}"))
                .with_hint(tool_choice_hint(missing))
        }
        BuildError::Schema { .. } => config.with_hint(AGENT_SCHEMA_HINT),
        BuildError::UnknownPrice { .. } => config.with_hint(PRICE_HINT),
        _ => config,
    })
}

/// Returns a hint with the nearest choice of tools.
fn tool_choice_hint(missing: &ToolNotFound) -> String {
    let words = TOOL_CHOICES.into_iter().chain(missing.nearest.as_deref());
    let all = "it is `auto`, `none`, `required` or the name of a tool";
    match nearest(&missing.name, &words.collect::<Vec<_>>()) {
        Some(near) => format!("did you mean `{near}`? {all}"),
        None => all.to_owned(),
    }
}

/// Converts an error of a tool to one about the file, with a hint.
fn registration(error: &ToolRegistrationError, path: &Path) -> CliError {
    let config = ConfigError::new(path, error.to_string());
    CliError::from(match error {
        ToolRegistrationError::Schema { .. } => config.with_hint(SCHEMA_HINT),
        _ => config,
    })
}

/// Returns the definition of a file's agent, without its input.
pub(crate) fn definition(file: &AgentFile) -> Value {
    let mut definition = file.source().clone();
    if let Some(agent) = definition.get_mut("agent").and_then(Value::as_object_mut) {
        agent.remove("input");
    }
    definition
}

/// Returns the data from which a later command builds the same agent: the file, and the folder of its relative paths.
/// Secrets are removed; `redacted` is set if the agent cannot be built without them.
fn source(file: &AgentFile, folder: &Path, redactor: &Redactor) -> Value {
    let mut source = definition(file);
    let redacted = redactor.redact_settings(&mut source);
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    json!({ "folder": recordable(&folder), "agent_file": source, "redacted": redacted })
}

/// Reads the input of a run: the command line's text, standard input, a file, or `input` of the agent file.
pub(crate) fn input(
    asked: Option<&str>,
    file: &AgentFile,
    path: &Path,
) -> Result<String, CliError> {
    let read = read_input(asked, file, path)?;
    if !read.trim().is_empty() {
        return Ok(read);
    }
    let what = "the input is empty";
    Err(match asked {
        Some("-") => CliError::usage(ConfigError::new("standard input", what))
            .with_hint("pipe what to ask into it, or give --input TEXT"),
        Some(_) => CliError::usage(format!("--input: {what}"))
            .with_hint("give --input TEXT, or leave it out where `input` stands in [agent]"),
        None => ConfigError::new(path, format!("`input` in [agent]: {what}"))
            .with_hint("write what to ask, or give --input TEXT")
            .into(),
    })
}

fn read_input(asked: Option<&str>, file: &AgentFile, path: &Path) -> Result<String, CliError> {
    match asked {
        Some("-") => output::input().map_err(|error| {
            CliError::usage(
                ConfigError::new("standard input", "cannot be taken").with_source(error),
            )
            .with_hint("--input - reads UTF-8 text of at most 16 MiB")
        }),
        Some(text) => match text.strip_prefix('@') {
            Some(name) => backstop_config::read_text(Path::new(name)).map_err(|error| {
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

/// Reads an image.
pub(crate) fn image(path: &Path) -> Result<Image, CliError> {
    let bytes = backstop_config::read_bytes(path, MAX_IMAGE_BYTES)?;
    Image::from_bytes(&bytes)
        .map_err(|error| CliError::usage(ConfigError::new(path, error.to_string())))
}
