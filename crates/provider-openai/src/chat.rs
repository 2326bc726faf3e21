//! Chat Completions.

mod calls;
mod content;
mod kept;
mod omitted;
mod request;
mod response;
mod stream;

use std::borrow::Cow;

use backstop_provider::{
    ModelRequest, ModelResponse, OutputSupport, ProviderError, SettingsSupport,
};
use backstop_provider_http::{
    Accepts, Endpoint, Events, FailureRule, HttpProvider, HttpProviderBuilder, Protocol,
    ProviderConfigError, Reply,
};
use serde::Serialize;

use self::omitted::Omitted;
use self::request::{ChatRequest, Dialect, MaxTokens};
use self::response::ChatResponse;
use self::stream::ChatStream;
use crate::classify::ROWS;
use crate::dialect::{ChatDialect, RequestFields};
use crate::own::{BASE_URL, EFFORTS, KEY_VARIABLE, azure_path, key_header, output_support};

/// A builder of a provider that speaks [`ChatCompletions`].
pub type OpenAi = HttpProviderBuilder<ChatCompletions>;

/// A provider that calls OpenAI, or another endpoint that speaks [`ChatCompletions`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use backstop_provider_openai::{OpenAi, OpenAiProvider};
///
/// let provider: OpenAiProvider =
///     OpenAi::new("qwen3").base_url("http://localhost:8080/v1").build()?;
/// let body = r#"{"choices": [{"message": {"content": "42"}, "finish_reason": "stop"}]}"#;
/// assert_eq!(&*provider.read("application/json", body).await?.text, "42");
/// # Ok(())
/// # }
/// ```
pub type OpenAiProvider = HttpProvider<ChatCompletions>;

/// OpenAI's protocol that many endpoints speak, with its own settings.
///
/// ```
/// use backstop_provider_openai::OpenAi;
///
/// let local = OpenAi::new("qwen3")
///     .base_url("http://localhost:8080/v1")
///     .with(|it| it.omits_done(true));
/// ```
#[derive(Debug, Clone, Default)]
pub struct ChatCompletions {
    max_completion_tokens: Option<bool>,
    omits: Omitted,
    omits_stream_options: bool,
    omits_output_schemas: bool,
    api_version: Option<String>,
    dialect: Option<ChatDialect>,
}

impl ChatCompletions {
    /// Sets the dialect of an endpoint that its host does not identify, such as Mistral behind a gateway.
    ///
    /// The dialect determines the ids, the order of messages and the reasoning that the endpoint accepts.
    #[must_use]
    pub const fn dialect(mut self, dialect: ChatDialect) -> Self {
        self.dialect = Some(dialect);
        self
    }

    fn dialect_at(&self, endpoint: &Endpoint) -> ChatDialect {
        let azure = self.api_version.as_ref().map(|_| ChatDialect::OpenAi);
        ChatDialect::at(endpoint, self.dialect.or(azure))
    }

    /// Sets whether the output limit is sent as `max_completion_tokens`, as OpenAI and Azure
    /// require, or as `max_tokens`, which other servers support.
    ///
    /// The default is the former for OpenAI itself and with [`ChatCompletions::api_version`], and
    /// the latter with any other base URL.
    #[must_use]
    pub const fn max_completion_tokens(mut self, yes: bool) -> Self {
        self.max_completion_tokens = Some(yes);
        self
    }

    /// Sets whether the endpoint omits the `[DONE]` at the end of a stream. A finish reason is
    /// still required.
    #[must_use]
    pub const fn omits_done(mut self, yes: bool) -> Self {
        self.omits.done = yes;
        self
    }

    /// Sets whether the endpoint ends an answer with an empty finish reason, or with none, as
    /// Snowflake Cortex does.
    ///
    /// Only the `[DONE]` shows then that a stream was not cut off, so it is required, whatever
    /// [`ChatCompletions::omits_done`] is.
    #[must_use]
    pub const fn omits_finish_reason(mut self, yes: bool) -> Self {
        self.omits.finish_reason = yes;
        self
    }

    /// Sets whether a stream requests its usage by `stream_options`, as by default. An endpoint
    /// that refuses the field may send usage anyway, or none, and then nothing is counted.
    #[must_use]
    pub const fn stream_options(mut self, yes: bool) -> Self {
        self.omits_stream_options = !yes;
        self
    }

    /// Sets whether the output schema is sent as `response_format`, as by default. If an endpoint
    /// refuses the field, only the instructions describe the schema to the model.
    #[must_use]
    pub const fn output_schemas(mut self, yes: bool) -> Self {
        self.omits_output_schemas = !yes;
        self
    }

    /// Sets the API version of Azure, sent as `?api-version=…`; the key is sent as `api-key` then.
    /// The base URL is that of a deployment,
    /// `https://NAME.openai.azure.com/openai/deployments/DEPLOYMENT`.
    #[must_use]
    pub fn api_version(mut self, version: impl Into<String>) -> Self {
        self.api_version = Some(version.into());
        self
    }
}

impl Protocol for ChatCompletions {
    const NAME: &'static str = "openai";
    const KEY_VARIABLE: &'static str = KEY_VARIABLE;
    const ROWS: &'static [FailureRule] = ROWS;
    type Framing = Events;
    type Response = ChatResponse;
    type Stream = ChatStream;

    fn base_url(&self) -> Result<Cow<'static, str>, ProviderConfigError> {
        Ok(BASE_URL.into())
    }

    fn path(&self, _model: &str, _is_streamed: bool) -> String {
        azure_path("/chat/completions", self.api_version.as_deref())
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        key_header(self.api_version.as_deref())
    }

    /// <https://platform.openai.com/docs/api-reference/chat/create>
    fn settings(&self, endpoint: &Endpoint) -> SettingsSupport {
        // Other servers accept more than OpenAI does.
        let max_stop = if endpoint.is_own() { 4 } else { usize::MAX };
        SettingsSupport::all().stop(max_stop).efforts(EFFORTS)
    }

    fn output_support(&self, endpoint: &Endpoint, request: &ModelRequest) -> OutputSupport {
        match self.omits_output_schemas {
            true => OutputSupport::Prompt,
            false => output_support(endpoint, request),
        }
    }

    fn accepts(&self, endpoint: &Endpoint) -> Accepts {
        self.dialect_at(endpoint).accepts()
    }

    fn request<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        request: &'a ModelRequest,
        is_streamed: bool,
    ) -> Result<impl Serialize + 'a, ProviderError> {
        let is_openai = endpoint.is_own() || self.api_version.is_some();
        let max_tokens = match self.max_completion_tokens.unwrap_or(is_openai) {
            true => MaxTokens::Completion,
            false => MaxTokens::Classic,
        };
        let known = self.dialect_at(endpoint);
        let dialect = Dialect {
            max_tokens,
            stream_options: !self.omits_stream_options && known.fields() == RequestFields::Usual,
            reasoning: known.reasoning(),
            fields: known.fields(),
        };
        ChatRequest::new(endpoint, request, dialect, is_streamed)
    }

    fn response(
        &self,
        response: ChatResponse,
        reply: &Reply<'_>,
    ) -> Result<ModelResponse, ProviderError> {
        response.read(self.omits, reply)
    }

    fn stream(&self) -> ChatStream {
        ChatStream::new(self.omits)
    }
}
