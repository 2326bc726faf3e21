//! What `backstop run` takes.

use std::path::{Path, PathBuf};

use backstop_provider::ScriptedAnswer;
use layer0::Approvers;
use serde::Deserialize;
use serde_json::Value;

use crate::ConfigError;
use crate::agent_memory_table::{AgentMemoryTable, check_memory};
use crate::agent_table::AgentTable;
use crate::approvals::check_approvals;
use crate::behavior_check::behaviors;
use crate::behavior_table::{BehaviorTable, WrittenBehavior};
use crate::checked::{approvers, at_least_one, object_schema, optional_capabilities, pointer};
use crate::environment_table::EnvironmentTable;
use crate::exact::check_values;
use crate::later::{Later, refuse};
use crate::limit_table::{LimitTable, check_limits};
use crate::mcp_table::McpTable;
use crate::model_table::ModelTable;
use crate::names::check_names;
use crate::parse::parse;
use crate::read::read_text;
use crate::redact_table::RedactTable;
use crate::tables::check_tables;

/// An agent file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentFile {
    /// What the agent is.
    #[serde(default)]
    pub agent: AgentTable,
    /// Who answers for it.
    pub model: ModelTable,
    /// Where its record is kept.
    #[serde(default)]
    pub store: StoreTable,
    /// What it can do.
    #[serde(default)]
    pub tools: Vec<ToolTable>,
    /// What is taken out of text beside what is known.
    #[serde(default)]
    pub redact: RedactTable,
    /// What its runs may spend together with others.
    #[serde(default)]
    pub limit: Vec<LimitTable>,
    /// What it remembers.
    pub memory: Option<AgentMemoryTable>,
    /// What is done about events of runs.
    #[serde(skip)]
    pub behaviors: Vec<BehaviorTable>,
    #[serde(default)]
    behavior: Vec<WrittenBehavior>,
    /// The servers whose tools it is given.
    #[serde(default)]
    pub mcp: Vec<McpTable>,
    /// What the programs of its tools may reach and use.
    pub environment: Option<EnvironmentTable>,
    telemetry: Option<Later>,
    /// The file as it was read, for the run's record.
    #[serde(skip)]
    source: Value,
}

/// `[store]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct StoreTable {
    /// Where; the platform's data folder otherwise.
    pub url: Option<String>,
    /// What survives what.
    pub durability: DurabilityName,
    /// How long errors are kept, in days; 30 otherwise.
    pub error_retention_days: Option<u32>,
    /// How long runs are kept after they ended, in days; for ever otherwise.
    pub run_retention_days: Option<u32>,
}

/// What a store survives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DurabilityName {
    /// Nothing.
    Memory,
    /// The death of the process.
    #[default]
    Normal,
    /// The loss of power.
    Full,
}

/// `[[tools]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ToolTable {
    /// A program, or one of ours.
    pub kind: ToolKind,
    /// The name the model calls it by.
    pub name: String,
    /// What it does, for the model.
    pub description: Option<String>,
    /// JSON Schema of the arguments.
    #[serde(default, deserialize_with = "object_schema")]
    pub schema: Option<Value>,
    /// JSON Schema of the output.
    pub output_schema: Option<Value>,
    /// The program and its arguments.
    pub command: Option<Vec<String>>,
    /// How long a call may take, in milliseconds.
    #[serde(default, deserialize_with = "at_least_one")]
    pub timeout_ms: Option<u64>,
    /// What it needs; `process:spawn` for programs otherwise.
    #[serde(default, deserialize_with = "optional_capabilities")]
    pub capabilities: Option<Vec<String>>,
    /// The variables it sees; `PATH`, `HOME` and `LANG` otherwise.
    pub env: Option<Vec<String>>,
    /// Where it runs; the file's folder otherwise.
    pub cwd: Option<PathBuf>,
    /// May a call be repeated?
    pub idempotent: Option<bool>,
    /// JSON pointer to the argument whose value names what is done once across runs.
    #[serde(default, deserialize_with = "pointer")]
    pub once: Option<String>,
    /// Does it only look around?
    pub exploratory: Option<bool>,
    /// The rules of its program, instead of the file's `[environment]`.
    pub environment: Option<EnvironmentTable>,
    /// Must a person agree to each call? As the tool itself says otherwise.
    pub approval: Option<bool>,
    /// How long there is to decide about a call, in milliseconds; for ever otherwise.
    #[serde(default, deserialize_with = "at_least_one")]
    pub expires_after_ms: Option<u64>,
    /// Who may decide about a call; any person by default.
    #[serde(default, deserialize_with = "approvers")]
    pub approvers: Approvers,
    /// JSON Schema of the data that each approval asks for.
    pub approval_schema: Option<Value>,
}

/// What a tool is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolKind {
    /// One of ours.
    Builtin,
    /// A program.
    Command,
}

impl AgentFile {
    /// Reads an agent file.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], naming file, line and how to mend it.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::of_text(path, &read_text(path)?)
    }

    pub(crate) fn of_text(path: &Path, text: &str) -> Result<Self, ConfigError> {
        check_tables(path, text)?;
        let mut file: Self = parse(path, text)?;
        check_values(path, text)?;
        file.source = parse(path, text)?;
        check_names(path, text)?;
        check_approvals(path, text)?;
        check_memory(path, text, file.memory)?;
        file.behaviors = behaviors(path, Some(text), &file.behavior, &file.agent.policy.grant)?;
        check_limits(path, text, &file.limit)?;
        let later = vec![("telemetry", file.telemetry.as_ref())];
        refuse(path, text, later)?;
        Ok(file)
    }

    /// Makes an agent file of what a run's record holds of one. `path` is what errors name, and
    /// relative paths are below its folder.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], when this version cannot read it.
    pub fn recorded(path: &Path, source: Value) -> Result<Self, ConfigError> {
        let read = |error: serde_json::Error| ConfigError::new(path, error.to_string());
        let mut file: Self = serde_json::from_value(source.clone()).map_err(read)?;
        file.behaviors = behaviors(path, None, &file.behavior, &file.agent.policy.grant)?;
        file.source = source;
        Ok(file)
    }

    /// Returns the file as JSON, so that a run's record can hold where its agent came from.
    #[must_use]
    pub const fn source(&self) -> &Value {
        &self.source
    }
}

/// Reads a file of `[[model]]` entries.
///
/// # Errors
///
/// [`ConfigError`], naming file, line and how to mend it.
pub fn read_script(path: &Path) -> Result<Vec<ScriptedAnswer>, ConfigError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Script {
        #[serde(default)]
        model: Vec<ScriptedAnswer>,
    }
    let text = read_text(path)?;
    let script: Script = parse(path, &text)?;
    check_values(path, &text)?;
    Ok(script.model)
}
