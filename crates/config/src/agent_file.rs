//! Agent files, the input of `backstop run`.

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
    /// The agent.
    #[serde(default)]
    pub agent: AgentTable,
    /// The model that answers.
    pub model: ModelTable,
    /// The store of its record.
    #[serde(default)]
    pub store: StoreTable,
    /// The agent's tools.
    #[serde(default)]
    pub tools: Vec<ToolTable>,
    /// Patterns of secrets to redact in addition to the known ones.
    #[serde(default)]
    pub redact: RedactTable,
    /// Limits on what its runs may spend together with others.
    #[serde(default)]
    pub limit: Vec<LimitTable>,
    /// The agent's memory.
    pub memory: Option<AgentMemoryTable>,
    /// Reactions to events of runs.
    #[serde(skip)]
    pub behaviors: Vec<BehaviorTable>,
    #[serde(default)]
    behavior: Vec<WrittenBehavior>,
    /// MCP servers whose tools the agent gets.
    #[serde(default)]
    pub mcp: Vec<McpTable>,
    /// Rules for the programs of its tools.
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
    /// URL of the store; in the platform's data folder by default.
    pub url: Option<String>,
    /// Failures that the store survives.
    pub durability: DurabilityName,
    /// Retention of stored errors, in days; 30 by default.
    pub error_retention_days: Option<u32>,
    /// Retention of ended runs, in days; unlimited by default.
    pub run_retention_days: Option<u32>,
}

/// The failures that a store survives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DurabilityName {
    /// None: the store ends with the process.
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
    /// Whether the tool is a program or built in.
    pub kind: ToolKind,
    /// Name by which the model calls the tool.
    pub name: String,
    /// Description for the model.
    pub description: Option<String>,
    /// JSON Schema of the arguments.
    #[serde(default, deserialize_with = "object_schema")]
    pub schema: Option<Value>,
    /// JSON Schema of the output.
    pub output_schema: Option<Value>,
    /// The program and its arguments.
    pub command: Option<Vec<String>>,
    /// Timeout of a call, in milliseconds.
    #[serde(default, deserialize_with = "at_least_one")]
    pub timeout_ms: Option<u64>,
    /// Capabilities that the tool needs; `process:spawn` for programs by default.
    #[serde(default, deserialize_with = "optional_capabilities")]
    pub capabilities: Option<Vec<String>>,
    /// Environment variables of the program; `PATH`, `HOME` and `LANG` by default.
    pub env: Option<Vec<String>>,
    /// Working folder; the file's folder by default.
    pub cwd: Option<PathBuf>,
    /// Whether a call may be repeated.
    pub idempotent: Option<bool>,
    /// JSON pointer to the argument whose value identifies an effect that happens once across runs.
    #[serde(default, deserialize_with = "pointer")]
    pub once: Option<String>,
    /// Whether the tool only reads, without effects.
    pub exploratory: Option<bool>,
    /// The rules of its program, instead of the file's `[environment]`.
    pub environment: Option<EnvironmentTable>,
    /// Whether a person must approve each call; the tool's own setting by default.
    pub approval: Option<bool>,
    /// Time limit for the decision about a call, in milliseconds; unlimited by default.
    #[serde(default, deserialize_with = "at_least_one")]
    pub expires_after_ms: Option<u64>,
    /// People who may decide about a call; any person by default.
    #[serde(default, deserialize_with = "approvers")]
    pub approvers: Approvers,
    /// JSON Schema of the data that each approval asks for.
    pub approval_schema: Option<Value>,
}

/// The kind of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolKind {
    /// A tool of Backstop.
    Builtin,
    /// A program.
    Command,
}

impl AgentFile {
    /// Reads an agent file.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with file, line and a hint.
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

    /// Reads the agent file that a run's record holds. Errors name `path`, and relative paths are below its folder.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if this version cannot read it.
    pub fn from_record(path: &Path, source: Value) -> Result<Self, ConfigError> {
        let read = |error: serde_json::Error| ConfigError::new(path, error.to_string());
        let mut file: Self = serde_json::from_value(source.clone()).map_err(read)?;
        file.behaviors = behaviors(path, None, &file.behavior, &file.agent.policy.grant)?;
        file.source = source;
        Ok(file)
    }

    /// Returns the file as JSON, for a run's record.
    #[must_use]
    pub const fn source(&self) -> &Value {
        &self.source
    }
}

/// Reads a file of `[[model]]` entries.
///
/// # Errors
///
/// [`ConfigError`] with file, line and a hint.
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
