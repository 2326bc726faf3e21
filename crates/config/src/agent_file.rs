//! What `backstop run` takes.

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use provider::ScriptedAnswer;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::ConfigError;
use crate::agent_table::AgentTable;
use crate::checked::{at_least_one, object_schema, optional_capabilities, temperature};
use crate::exact::check_values;
use crate::later::{Later, refuse};
use crate::names::check_names;
use crate::parse::parse;
use crate::read::read_text;
use crate::redact_table::RedactTable;

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
    mcp: Option<Later>,
    /// The file as it was read, for the run's record.
    #[serde(skip)]
    source: Value,
}

/// `[model]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelTable {
    /// The adapter.
    pub provider: ProviderName,
    /// The model, as the provider names it.
    pub model: Option<String>,
    /// Where the provider is, instead of its usual place.
    pub base_url: Option<String>,
    /// The variable that holds the key, instead of the usual one.
    pub api_key_env: Option<String>,
    /// The most tokens of an answer.
    #[serde(default, deserialize_with = "at_least_one")]
    pub max_output_tokens: Option<u32>,
    /// How much answers vary.
    #[serde(default, deserialize_with = "temperature")]
    pub temperature: Option<f32>,
    /// Take the answer while it comes?
    #[serde(default = "yes")]
    pub stream: bool,
    /// The answers, for `provider = "script"`.
    pub script: Option<PathBuf>,
    /// OpenAI: the endpoint leaves out the `[DONE]` at the end of a stream.
    pub omits_done: Option<bool>,
    /// OpenAI: the endpoint takes the output limit as `max_completion_tokens`.
    pub max_completion_tokens: Option<bool>,
    /// Fields that are added to the body of every request, merged at every depth.
    #[serde(default)]
    pub extra_body: Map<String, Value>,
    /// How long the phases of a call may take.
    #[serde(default)]
    pub timeouts: TimeoutsTable,
    /// Who is asked, in turn, when those before could not answer.
    #[serde(default)]
    pub fallback: Vec<FallbackTable>,
}

/// `[[model.fallback]]`: another provider. Limits of answers are the first one's.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FallbackTable {
    /// The adapter.
    pub provider: ProviderName,
    /// The model, as the provider names it.
    pub model: Option<String>,
    /// Where the provider is, instead of its usual place.
    pub base_url: Option<String>,
    /// The variable that holds the key, instead of the usual one.
    pub api_key_env: Option<String>,
    /// The answers, for `provider = "script"`.
    pub script: Option<PathBuf>,
    /// OpenAI: the endpoint leaves out the `[DONE]` at the end of a stream.
    pub omits_done: Option<bool>,
    /// OpenAI: the endpoint takes the output limit as `max_completion_tokens`.
    pub max_completion_tokens: Option<bool>,
    /// Fields that are added to the body of every request, merged at every depth.
    #[serde(default)]
    pub extra_body: Map<String, Value>,
    /// How long the phases of a call may take.
    #[serde(default)]
    pub timeouts: TimeoutsTable,
}

impl ModelTable {
    /// Returns the table that a fallback stands for.
    #[must_use]
    pub fn of_fallback(&self, fallback: &FallbackTable) -> Self {
        let fallback = fallback.clone();
        Self {
            provider: fallback.provider,
            model: fallback.model,
            base_url: fallback.base_url,
            api_key_env: fallback.api_key_env,
            script: fallback.script,
            omits_done: fallback.omits_done,
            max_completion_tokens: fallback.max_completion_tokens,
            extra_body: fallback.extra_body,
            timeouts: fallback.timeouts,
            fallback: Vec::new(),
            ..self.clone()
        }
    }
}

const fn yes() -> bool {
    true
}

/// The adapters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ProviderName {
    /// Anthropic Messages.
    Anthropic,
    /// Amazon Bedrock Converse.
    Bedrock,
    /// Gemini generateContent.
    Gemini,
    /// Ollama chat.
    Ollama,
    /// OpenAI Chat Completions, and what speaks it.
    Openai,
    /// OpenAI Responses.
    OpenaiResponses,
    /// Answers from a file.
    Script,
}

/// `[model.timeouts]`, in milliseconds, none zero; what is not given keeps its default.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimeoutsTable {
    /// Connecting.
    pub connect_ms: Option<NonZeroU64>,
    /// Waiting for the first byte.
    pub first_byte_ms: Option<NonZeroU64>,
    /// Waiting for the next chunk.
    pub idle_ms: Option<NonZeroU64>,
    /// The attempt as a whole.
    pub attempt_ms: Option<NonZeroU64>,
}

/// `[store]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
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
    /// Does it only look around?
    pub exploratory: Option<bool>,
    /// Must a person agree to each call?
    #[serde(default)]
    pub approval: bool,
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
        let text = read_text(path)?;
        let mut file: Self = parse(path, &text)?;
        check_values(path, &text)?;
        file.source = parse(path, &text)?;
        check_names(path, &text)?;
        refuse(path, &text, vec![("mcp", file.mcp.as_ref())])?;
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
