//! Chat Completions.

mod request;
mod response;
mod stream;

use std::borrow::Cow;

use provider::{ModelRequest, ModelResponse, ProviderError};
use provider_http::{
    ConfigError, Endpoint, Events, HttpProvider, HttpProviderBuilder, Protocol, Reply, Row,
};
use serde::Serialize;

use self::request::{ChatRequest, MaxTokens};
use self::response::ChatResponse;
use self::stream::ChatStream;
use crate::classify::ROWS;
use crate::own::{BASE_URL, KEY_VARIABLE};

/// Sets up a provider that speaks [`ChatCompletions`].
pub type OpenAi = HttpProviderBuilder<ChatCompletions>;

/// Asks OpenAI, or an endpoint that speaks [`ChatCompletions`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use provider_openai::{OpenAi, OpenAiProvider};
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
/// use provider_openai::OpenAi;
///
/// let local = OpenAi::new("qwen3")
///     .base_url("http://localhost:8080/v1")
///     .with(|it| it.omits_done(true));
/// ```
#[derive(Debug, Clone, Default)]
pub struct ChatCompletions {
    max_completion_tokens: Option<bool>,
    omits_done: bool,
}

impl ChatCompletions {
    /// Says whether the output limit is sent as `max_completion_tokens`, as OpenAI and Azure want
    /// it, or as `max_tokens`, which everybody else understands. By default the former without a
    /// base URL and the latter with one.
    #[must_use]
    pub const fn max_completion_tokens(mut self, yes: bool) -> Self {
        self.max_completion_tokens = Some(yes);
        self
    }

    /// Declares that the endpoint leaves out the `[DONE]` at the end of a stream. A finish reason
    /// is required all the same.
    #[must_use]
    pub const fn omits_done(mut self, yes: bool) -> Self {
        self.omits_done = yes;
        self
    }
}

impl Protocol for ChatCompletions {
    const NAME: &'static str = "openai";
    const KEY_VARIABLE: &'static str = KEY_VARIABLE;
    const ROWS: &'static [Row] = ROWS;
    type Framing = Events;
    type Response = ChatResponse;
    type Stream = ChatStream;

    fn base_url(&self) -> Result<Cow<'static, str>, ConfigError> {
        Ok(BASE_URL.into())
    }

    fn path(&self, _model: &str, _is_streamed: bool) -> String {
        "/chat/completions".to_owned()
    }

    fn request<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        request: &'a ModelRequest,
        is_streamed: bool,
    ) -> Result<impl Serialize + 'a, ProviderError> {
        let max_tokens = match self.max_completion_tokens.unwrap_or(endpoint.is_own()) {
            true => MaxTokens::Completion,
            false => MaxTokens::Classic,
        };
        ChatRequest::new(endpoint.model(), request, max_tokens, is_streamed)
    }

    fn response(
        &self,
        response: ChatResponse,
        reply: &Reply<'_>,
    ) -> Result<ModelResponse, ProviderError> {
        response.read(reply)
    }

    fn stream(&self) -> ChatStream {
        ChatStream::new(self.omits_done)
    }
}
