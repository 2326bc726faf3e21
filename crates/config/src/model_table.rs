//! `[model]`: who answers, and how.

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
    /// Where the provider is, instead of its usual place.
    pub base_url: Option<String>,
    /// The variable that holds the key, instead of the usual one.
    #[serde(default, deserialize_with = "variable")]
    pub api_key_env: Option<String>,
    /// The most tokens of an answer.
    #[serde(default, deserialize_with = "at_least_one")]
    pub max_output_tokens: Option<u32>,
    /// How much answers vary.
    #[serde(default, deserialize_with = "temperature")]
    pub temperature: Option<f32>,
    /// How much of the probability mass answers are drawn from.
    #[serde(default, deserialize_with = "top_p")]
    pub top_p: Option<f32>,
    /// The texts at which answers stop.
    #[serde(default, deserialize_with = "texts")]
    pub stop: Vec<String>,
    /// What makes answers to one request alike.
    pub seed: Option<i64>,
    /// How much the model thinks.
    pub reasoning_effort: Option<ReasoningEffort>,
    /// Whether a tool may, must or must not be called.
    #[serde(default, deserialize_with = "tool_choice")]
    pub tool_choice: Option<ToolChoice>,
    /// Take the answer while it comes?
    #[serde(default = "yes")]
    pub stream: bool,
    /// The answers, for `provider = "script"`.
    pub script: Option<PathBuf>,
    /// Anthropic, Claude on Bedrock: is the prompt so far marked to be cached? It is otherwise.
    pub cache: Option<bool>,
    /// OpenAI: the endpoint leaves out the `[DONE]` at the end of a stream.
    pub omits_done: Option<bool>,
    /// OpenAI: the endpoint ends an answer without a finish reason.
    pub omits_finish_reason: Option<bool>,
    /// OpenAI: the endpoint takes the output limit as `max_completion_tokens`.
    pub max_completion_tokens: Option<bool>,
    /// OpenAI: is a stream asked for its usage, by `stream_options`?
    pub stream_options: Option<bool>,
    /// OpenAI: is the schema of a typed answer sent, by `response_format`?
    pub output_schemas: Option<bool>,
    /// OpenAI: the dialect of an endpoint whose host does not tell.
    pub dialect: Option<DialectName>,
    /// OpenAI: the version of Azure's interface.
    #[serde(default, deserialize_with = "optional_text")]
    pub api_version: Option<String>,
    /// Headers of every request.
    #[serde(default)]
    pub headers: BTreeMap<String, TextOrCredential>,
    /// The program that asks, as the provider reads it.
    #[serde(default, deserialize_with = "optional_text")]
    pub user_agent: Option<String>,
    /// Fields that are added to the body of every request, merged at every depth.
    #[serde(default)]
    pub extra_body: Map<String, Value>,
    /// How long the phases of a call may take.
    #[serde(default)]
    pub timeouts: TimeoutsTable,
    /// What its tokens cost, in place of `[agent.price]`.
    pub price: Option<PriceTable>,
    /// How many requests it is sent in a minute.
    #[serde(default, deserialize_with = "at_least_one")]
    pub requests_per_minute: Option<u32>,
    /// How many tokens its answers may use in a minute.
    #[serde(default, deserialize_with = "at_least_one")]
    pub tokens_per_minute: Option<u64>,
    /// How long it is left alone after it refused, where others are beside it.
    pub cooldown_ms: Option<NonZeroU64>,
    /// Further endpoints or keys of the model, among which calls are spread.
    #[serde(default)]
    pub pool: Vec<EndpointTable>,
    /// Who is asked, in turn, when those before could not answer.
    #[serde(default)]
    pub fallback: Vec<EndpointTable>,
    /// Where it stands in the file.
    #[serde(skip, default = "model_header")]
    header: &'static str,
}

/// The way in which an endpoint speaks OpenAI's chat protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DialectName {
    /// An endpoint that is sent what all of them take.
    Compatible,
    /// DeepSeek, and others that want `reasoning_content` back.
    Deepseek,
    /// Gemini's compatible endpoint.
    Gemini,
    /// Mistral.
    Mistral,
    /// OpenAI itself.
    Openai,
    /// OpenRouter.
    Openrouter,
}

impl DialectName {
    /// Returns the name, as files have it.
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

/// `[[model.pool]]` and `[[model.fallback]]`: another endpoint of the model, or another provider. Limits of
/// answers are the first one's.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct EndpointTable {
    /// The adapter.
    pub provider: ProviderName,
    /// The model, as the provider names it.
    pub model: Option<String>,
    /// Where the provider is, instead of its usual place.
    pub base_url: Option<String>,
    /// The variable that holds the key, instead of the usual one.
    #[serde(default, deserialize_with = "variable")]
    pub api_key_env: Option<String>,
    /// The answers, for `provider = "script"`.
    pub script: Option<PathBuf>,
    /// Anthropic, Claude on Bedrock: is the prompt so far marked to be cached? It is otherwise.
    pub cache: Option<bool>,
    /// OpenAI: the endpoint leaves out the `[DONE]` at the end of a stream.
    pub omits_done: Option<bool>,
    /// OpenAI: the endpoint ends an answer without a finish reason.
    pub omits_finish_reason: Option<bool>,
    /// OpenAI: the endpoint takes the output limit as `max_completion_tokens`.
    pub max_completion_tokens: Option<bool>,
    /// OpenAI: is a stream asked for its usage, by `stream_options`?
    pub stream_options: Option<bool>,
    /// OpenAI: is the schema of a typed answer sent, by `response_format`?
    pub output_schemas: Option<bool>,
    /// OpenAI: the dialect of an endpoint whose host does not tell.
    pub dialect: Option<DialectName>,
    /// OpenAI: the version of Azure's interface.
    #[serde(default, deserialize_with = "optional_text")]
    pub api_version: Option<String>,
    /// Headers of every request.
    #[serde(default)]
    pub headers: BTreeMap<String, TextOrCredential>,
    /// The program that asks, as the provider reads it.
    #[serde(default, deserialize_with = "optional_text")]
    pub user_agent: Option<String>,
    /// Fields that are added to the body of every request, merged at every depth.
    #[serde(default)]
    pub extra_body: Map<String, Value>,
    /// How long the phases of a call may take.
    #[serde(default)]
    pub timeouts: TimeoutsTable,
    /// What its tokens cost, in place of `[agent.price]`.
    pub price: Option<PriceTable>,
    /// How many requests it is sent in a minute.
    #[serde(default, deserialize_with = "at_least_one")]
    pub requests_per_minute: Option<u32>,
    /// How many tokens its answers may use in a minute.
    #[serde(default, deserialize_with = "at_least_one")]
    pub tokens_per_minute: Option<u64>,
    /// How long it is left alone after it refused, where others are beside it.
    pub cooldown_ms: Option<NonZeroU64>,
}

impl ModelTable {
    /// Returns how the model should answer.
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

    /// Returns who is asked, in order: the endpoints of the model, then each fallback. What the model is
    /// called need not stand in each entry of its pool.
    #[must_use]
    pub fn pools(&self) -> Vec<Vec<Self>> {
        let alone = Self { pool: Vec::new(), fallback: Vec::new(), ..self.clone() };
        let beside = self.pool.iter().map(|entry| {
            let entry = self.of(entry, "[[model.pool]]");
            let model = entry.model.or_else(|| self.model.clone());
            Self { model, ..entry }
        });
        let model = std::iter::once(alone).chain(beside).collect();
        let fallbacks =
            self.fallback.iter().map(|entry| vec![self.of(entry, "[[model.fallback]]")]);
        std::iter::once(model).chain(fallbacks).collect()
    }

    /// Returns the table that an entry stands for.
    fn of(&self, entry: &EndpointTable, header: &'static str) -> Self {
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

impl ProviderName {
    /// Returns the name that files write.
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

/// `[model.timeouts]`, in milliseconds, none zero; what is not given keeps its default.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
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
