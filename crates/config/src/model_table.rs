//! `[model]`: the model that answers, and its settings.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::PathBuf;

use backstop_provider::{ModelSettings, ReasoningEffort, ToolChoice};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::agent_table::PriceTable;
use crate::checked::{
    at_least_one, optional_text, temperature, texts, tool_choice, top_p, variable,
};
use crate::text_or_credential::TextOrCredential;

/// `[model]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ModelTable {
    /// The adapter.
    pub provider: ProviderName,
    /// The model, as the provider names it.
    pub model: Option<String>,
    /// Base URL of the provider; its public one by default.
    pub base_url: Option<String>,
    /// Variable that holds the key; the provider's usual one by default.
    #[serde(default, deserialize_with = "variable")]
    pub api_key_env: Option<String>,
    /// Limit of tokens of an answer.
    #[serde(default, deserialize_with = "at_least_one")]
    pub max_output_tokens: Option<u32>,
    /// Temperature.
    #[serde(default, deserialize_with = "temperature")]
    pub temperature: Option<f32>,
    /// Part of the probability mass from which answers are drawn.
    #[serde(default, deserialize_with = "top_p")]
    pub top_p: Option<f32>,
    /// Texts at which answers stop.
    #[serde(default, deserialize_with = "texts")]
    pub stop: Vec<String>,
    /// Seed that makes the answers to one request alike.
    pub seed: Option<i64>,
    /// Reasoning effort of the model.
    pub reasoning_effort: Option<ReasoningEffort>,
    /// Whether a tool may, must or must not be called.
    #[serde(default, deserialize_with = "tool_choice")]
    pub tool_choice: Option<ToolChoice>,
    /// Whether answers are streamed.
    #[serde(default = "yes")]
    pub stream: bool,
    /// File of the answers, for `provider = "script"`.
    pub script: Option<PathBuf>,
    /// Anthropic, Claude on Bedrock: whether to mark the prompt so far for caching; true by default.
    pub cache: Option<bool>,
    /// OpenAI: whether the endpoint leaves out the `[DONE]` at the end of a stream.
    pub omits_done: Option<bool>,
    /// OpenAI: whether the endpoint ends an answer without a finish reason.
    pub omits_finish_reason: Option<bool>,
    /// OpenAI: whether the endpoint takes the output limit as `max_completion_tokens`.
    pub max_completion_tokens: Option<bool>,
    /// OpenAI: whether to request the usage of a stream by `stream_options`.
    pub stream_options: Option<bool>,
    /// OpenAI: whether to send the schema of a typed answer by `response_format`.
    pub output_schemas: Option<bool>,
    /// OpenAI: dialect of an endpoint whose host does not determine it.
    pub dialect: Option<DialectName>,
    /// OpenAI: version of Azure's API.
    #[serde(default, deserialize_with = "optional_text")]
    pub api_version: Option<String>,
    /// Headers of each request.
    #[serde(default)]
    pub headers: BTreeMap<String, TextOrCredential>,
    /// User agent that the provider sees.
    #[serde(default, deserialize_with = "optional_text")]
    pub user_agent: Option<String>,
    /// Additional fields for the body of each request, merged at every depth.
    #[serde(default)]
    pub extra_body: Map<String, Value>,
    /// Timeouts of the phases of a call.
    #[serde(default)]
    pub timeouts: TimeoutsTable,
    /// Prices of its tokens, in place of `[agent.price]`.
    pub price: Option<PriceTable>,
    /// Limit of requests per minute.
    #[serde(default, deserialize_with = "at_least_one")]
    pub requests_per_minute: Option<u32>,
    /// Limit of tokens of answers per minute.
    #[serde(default, deserialize_with = "at_least_one")]
    pub tokens_per_minute: Option<u64>,
    /// Time for which the endpoint is skipped after a refusal if there are others, in milliseconds.
    pub cooldown_ms: Option<NonZeroU64>,
    /// Additional endpoints or keys of the model, over which calls are spread.
    #[serde(default)]
    pub pool: Vec<EndpointTable>,
    /// Endpoints to call in turn after a failure of the earlier ones.
    #[serde(default)]
    pub fallback: Vec<EndpointTable>,
    /// Header of the table in the file.
    #[serde(skip, default = "model_header")]
    header: &'static str,
}

/// The dialect in which an endpoint uses OpenAI's chat protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DialectName {
    /// An endpoint that gets only the fields that all endpoints accept.
    Compatible,
    /// DeepSeek, and other endpoints that expect `reasoning_content` back.
    Deepseek,
    /// Gemini's OpenAI-compatible endpoint.
    Gemini,
    /// Mistral.
    Mistral,
    /// OpenAI itself.
    Openai,
    /// OpenRouter.
    Openrouter,
}

impl DialectName {
    /// Returns the name in files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Compatible => "compatible",
            Self::Deepseek => "deepseek",
            Self::Gemini => "gemini",
            Self::Mistral => "mistral",
            Self::Openai => "openai",
            Self::Openrouter => "openrouter",
        }
    }
}

/// `[[model.pool]]` and `[[model.fallback]]`: another endpoint of the model, or another provider. Settings of answers,
/// such as `temperature`, are those of `[model]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct EndpointTable {
    /// The adapter.
    pub provider: ProviderName,
    /// The model, as the provider names it.
    pub model: Option<String>,
    /// Base URL of the provider; its public one by default.
    pub base_url: Option<String>,
    /// Variable that holds the key; the provider's usual one by default.
    #[serde(default, deserialize_with = "variable")]
    pub api_key_env: Option<String>,
    /// File of the answers, for `provider = "script"`.
    pub script: Option<PathBuf>,
    /// Anthropic, Claude on Bedrock: whether to mark the prompt so far for caching; true by default.
    pub cache: Option<bool>,
    /// OpenAI: whether the endpoint leaves out the `[DONE]` at the end of a stream.
    pub omits_done: Option<bool>,
    /// OpenAI: whether the endpoint ends an answer without a finish reason.
    pub omits_finish_reason: Option<bool>,
    /// OpenAI: whether the endpoint takes the output limit as `max_completion_tokens`.
    pub max_completion_tokens: Option<bool>,
    /// OpenAI: whether to request the usage of a stream by `stream_options`.
    pub stream_options: Option<bool>,
    /// OpenAI: whether to send the schema of a typed answer by `response_format`.
    pub output_schemas: Option<bool>,
    /// OpenAI: dialect of an endpoint whose host does not determine it.
    pub dialect: Option<DialectName>,
    /// OpenAI: version of Azure's API.
    #[serde(default, deserialize_with = "optional_text")]
    pub api_version: Option<String>,
    /// Headers of each request.
    #[serde(default)]
    pub headers: BTreeMap<String, TextOrCredential>,
    /// User agent that the provider sees.
    #[serde(default, deserialize_with = "optional_text")]
    pub user_agent: Option<String>,
    /// Additional fields for the body of each request, merged at every depth.
    #[serde(default)]
    pub extra_body: Map<String, Value>,
    /// Timeouts of the phases of a call.
    #[serde(default)]
    pub timeouts: TimeoutsTable,
    /// Prices of its tokens, in place of `[agent.price]`.
    pub price: Option<PriceTable>,
    /// Limit of requests per minute.
    #[serde(default, deserialize_with = "at_least_one")]
    pub requests_per_minute: Option<u32>,
    /// Limit of tokens of answers per minute.
    #[serde(default, deserialize_with = "at_least_one")]
    pub tokens_per_minute: Option<u64>,
    /// Time for which the endpoint is skipped after a refusal if there are others, in milliseconds.
    pub cooldown_ms: Option<NonZeroU64>,
}

impl ModelTable {
    /// Returns the settings of model calls.
    #[must_use]
    pub fn settings(&self) -> ModelSettings {
        let mut settings = ModelSettings::new().stop(self.stop.iter().map(String::as_str));
        settings.max_output_tokens = self.max_output_tokens;
        settings.temperature = self.temperature;
        settings.top_p = self.top_p;
        settings.seed = self.seed;
        settings.reasoning_effort = self.reasoning_effort;
        settings.tool_choice.clone_from(&self.tool_choice);
        settings
    }

    /// Returns the header of its table: `[model]`, `[[model.pool]]` or `[[model.fallback]]`.
    #[must_use]
    pub const fn header(&self) -> &'static str {
        self.header
    }

    /// Returns the endpoints in the order of calls: those of the model, then each fallback. A pool entry without
    /// `model` gets that of `[model]`.
    #[must_use]
    pub fn pools(&self) -> Vec<Vec<Self>> {
        let alone = Self { pool: Vec::new(), fallback: Vec::new(), ..self.clone() };
        let beside = self.pool.iter().map(|entry| {
            let entry = self.expand_entry(entry, "[[model.pool]]");
            let model = entry.model.or_else(|| self.model.clone());
            Self { model, ..entry }
        });
        let model = std::iter::once(alone).chain(beside).collect();
        let fallbacks =
            self.fallback.iter().map(|entry| vec![self.expand_entry(entry, "[[model.fallback]]")]);
        std::iter::once(model).chain(fallbacks).collect()
    }

    /// Returns the full table of an entry.
    fn expand_entry(&self, entry: &EndpointTable, header: &'static str) -> Self {
        let entry = entry.clone();
        Self {
            provider: entry.provider,
            model: entry.model,
            base_url: entry.base_url,
            api_key_env: entry.api_key_env,
            script: entry.script,
            cache: entry.cache,
            omits_done: entry.omits_done,
            omits_finish_reason: entry.omits_finish_reason,
            max_completion_tokens: entry.max_completion_tokens,
            stream_options: entry.stream_options,
            output_schemas: entry.output_schemas,
            dialect: entry.dialect,
            api_version: entry.api_version,
            headers: entry.headers,
            user_agent: entry.user_agent,
            extra_body: entry.extra_body,
            timeouts: entry.timeouts,
            price: entry.price,
            requests_per_minute: entry.requests_per_minute,
            tokens_per_minute: entry.tokens_per_minute,
            cooldown_ms: entry.cooldown_ms,
            pool: Vec::new(),
            fallback: Vec::new(),
            header,
            ..self.clone()
        }
    }
}

const fn model_header() -> &'static str {
    "[model]"
}

const fn yes() -> bool {
    true
}

/// The provider adapters.
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
    /// OpenAI Chat Completions and compatible endpoints.
    Openai,
    /// OpenAI Responses.
    OpenaiResponses,
    /// Answers from a file.
    Script,
}

impl ProviderName {
    /// Returns the name in files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Bedrock => "bedrock",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
            Self::Openai => "openai",
            Self::OpenaiResponses => "openai-responses",
            Self::Script => "script",
        }
    }
}

/// `[model.timeouts]`, in milliseconds, none zero; an absent field keeps its default.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct TimeoutsTable {
    /// Connection.
    pub connect_ms: Option<NonZeroU64>,
    /// Wait for the first byte.
    pub first_byte_ms: Option<NonZeroU64>,
    /// Wait for the next chunk.
    pub idle_ms: Option<NonZeroU64>,
    /// The attempt as a whole.
    pub attempt_ms: Option<NonZeroU64>,
}
