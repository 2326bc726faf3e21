use std::sync::Arc;

use async_trait::async_trait;
use provider::{ModelRequest, ModelResponse, Provider, ProviderError, StreamSink};
use provider_http::{Answer, ApiKey, ConfigError, Endpoint, Timeouts};
use serde_json::{Map, Value};

use crate::place::{KEY_VARIABLE, Place};
use crate::request::{ChatRequest, MaxTokens};
use crate::{response, stream};

const NAME: &str = "openai";

/// Sets up a provider.
#[derive(Debug, Clone)]
pub struct OpenAi {
    model: Arc<str>,
    base_url: Option<String>,
    api_key: Option<ApiKey>,
    timeouts: Timeouts,
    extra_body: Map<String, Value>,
    max_completion_tokens: Option<bool>,
    omits_done: bool,
}

impl OpenAi {
    /// Names the model. No key is read from the environment: a key meant for OpenAI must not
    /// travel to another base URL unasked.
    pub fn new(model: impl Into<Arc<str>>) -> Self {
        Self {
            model: model.into(),
            base_url: None,
            api_key: None,
            timeouts: Timeouts::default(),
            extra_body: Map::new(),
            max_completion_tokens: None,
            omits_done: false,
        }
    }

    /// Names the model and takes the key from [`KEY_VARIABLE`].
    ///
    /// # Errors
    ///
    /// As [`ApiKey::from_env`].
    pub fn from_env(model: impl Into<Arc<str>>) -> Result<Self, ConfigError> {
        Ok(Self::new(model).api_key(ApiKey::from_env(KEY_VARIABLE)?))
    }

    /// Sends to another endpoint than [`BASE_URL`](crate::BASE_URL); `/chat/completions` is appended.
    #[must_use]
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// Sets the key. It is optional where a base URL is set: local endpoints need none.
    #[must_use]
    pub fn api_key(mut self, key: impl Into<ApiKey>) -> Self {
        self.api_key = Some(key.into());
        self
    }

    /// Sets how long each phase may take.
    #[must_use]
    pub const fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

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

    /// Adds these fields to the body of every request, for what this builder has no word for. Objects
    /// are merged at every depth; another value takes the place of what would be sent.
    #[must_use]
    pub fn extra_body(mut self, fields: Map<String, Value>) -> Self {
        self.extra_body = fields;
        self
    }

    /// Makes the provider. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// [`ConfigError::MissingKey`] with neither key nor base URL, [`ConfigError::InvalidKey`],
    /// [`ConfigError::InvalidBaseUrl`], [`ConfigError::Client`].
    pub fn build(self) -> Result<OpenAiProvider, ConfigError> {
        let endpoint = Place {
            provider: NAME,
            model: &self.model,
            base_url: self.base_url.as_deref(),
            path: "/chat/completions",
            api_key: self.api_key.as_ref(),
            timeouts: self.timeouts,
        }
        .open()?
        .extra_body(self.extra_body);
        let max_tokens = match self.max_completion_tokens.unwrap_or(self.base_url.is_none()) {
            true => MaxTokens::Completion,
            false => MaxTokens::Classic,
        };
        Ok(OpenAiProvider { endpoint, max_tokens, omits_done: self.omits_done })
    }
}

/// Asks an endpoint that speaks Chat Completions.
#[derive(Debug)]
pub struct OpenAiProvider {
    endpoint: Endpoint,
    max_tokens: MaxTokens,
    omits_done: bool,
}

impl OpenAiProvider {
    /// Returns how long each phase may take. The layer around applies `attempt`.
    #[must_use]
    pub const fn timeouts(&self) -> Timeouts {
        self.endpoint.timeouts()
    }

    /// Reads an answer that is here already, such as a recorded one, just as
    /// [`stream`](Provider::stream) reads one from the wire: whole where the content type is JSON or
    /// HTML, as events otherwise. Nothing is sent.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use provider_openai::OpenAi;
    ///
    /// let provider = OpenAi::new("qwen3").base_url("http://localhost:8080/v1").build()?;
    /// let body = r#"{"choices": [{"message": {"content": "42"}, "finish_reason": "stop"}]}"#;
    /// assert_eq!(&*provider.read("application/json", body).await?.text, "42");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ProviderError::StreamTruncated`] when the body ends early,
    /// [`ProviderError::InvalidResponse`] when it is not an answer of this protocol or too large;
    /// whatever a failure in the body is.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with a timer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the answer; it can be read again.
    pub async fn read(
        &self,
        content_type: &str,
        body: impl Into<Vec<u8>>,
    ) -> Result<ModelResponse, ProviderError> {
        self.decode(self.endpoint.recorded(content_type, body), None).await
    }

    async fn decode(
        &self,
        mut answer: Answer<'_>,
        sink: Option<&dyn StreamSink>,
    ) -> Result<ModelResponse, ProviderError> {
        if answer.is_event_stream().await? {
            return stream::read(answer.events(), sink, self.omits_done).await;
        }
        // An endpoint that cannot stream answers in one piece, and so does a failure.
        let response = response::read(&self.endpoint, answer, sink).await?;
        provider_http::read_aloud(&response, sink);
        Ok(response)
    }
}

#[async_trait]
impl Provider for OpenAiProvider {
    fn name(&self) -> &str {
        NAME
    }

    fn model(&self) -> &str {
        self.endpoint.model()
    }

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let body = ChatRequest::whole(self.endpoint.model(), request, self.max_tokens)?;
        let answer = self.endpoint.post(&body, request.sink.as_deref()).await?;
        self.decode(answer, request.sink.as_deref()).await
    }

    async fn stream(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let body = ChatRequest::streamed(self.endpoint.model(), request, self.max_tokens)?;
        let answer = self.endpoint.post(&body, request.sink.as_deref()).await?;
        self.decode(answer, request.sink.as_deref()).await
    }
}
