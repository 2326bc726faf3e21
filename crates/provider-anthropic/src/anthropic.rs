use std::sync::Arc;

use async_trait::async_trait;
use provider::{ModelRequest, ModelResponse, Provider, ProviderError, StreamSink};
use provider_http::{
    Answer, ApiKey, ConfigError, Credential, Endpoint, EndpointSettings, Timeouts,
};
use serde_json::{Map, Value};

use crate::classify::ROWS;
use crate::request::MessagesRequest;
use crate::{response, stream};

/// Where Anthropic itself answers.
pub const BASE_URL: &str = "https://api.anthropic.com";

/// The environment variable that [`Anthropic::from_env`] reads the key from.
pub const KEY_VARIABLE: &str = "ANTHROPIC_API_KEY";

/// The output limit where the request names none; the protocol requires one.
pub const DEFAULT_MAX_TOKENS: u32 = 4_096;

/// The version of the protocol, <https://docs.anthropic.com/en/api/versioning>.
const VERSION: &str = "2023-06-01";

const NAME: &str = "anthropic";

/// Sets up a provider.
#[derive(Debug, Clone)]
pub struct Anthropic {
    model: Arc<str>,
    base_url: Option<String>,
    api_key: Option<ApiKey>,
    timeouts: Timeouts,
    extra_body: Map<String, Value>,
    caches: bool,
}

impl Anthropic {
    /// Names the model. No key is read from the environment: a key meant for Anthropic must not
    /// travel to another base URL unasked.
    pub fn new(model: impl Into<Arc<str>>) -> Self {
        Self {
            model: model.into(),
            base_url: None,
            api_key: None,
            timeouts: Timeouts::default(),
            extra_body: Map::new(),
            caches: true,
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

    /// Sends to another endpoint than [`BASE_URL`]; `/v1/messages` is appended.
    #[must_use]
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// Sets the key. It is optional where a base URL is set: a gateway may hold its own.
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

    /// Says whether the tools and the conversation so far are marked to be cached, as they are by
    /// default: an agent sends them again with every turn.
    #[must_use]
    pub const fn caches_prompts(mut self, yes: bool) -> Self {
        self.caches = yes;
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
    pub fn build(self) -> Result<AnthropicProvider, ConfigError> {
        if self.api_key.is_none() && self.base_url.is_none() {
            return Err(ConfigError::missing_key(KEY_VARIABLE));
        }
        let endpoint = Endpoint::open(&EndpointSettings {
            provider: NAME,
            model: &self.model,
            base_url: self.base_url.as_deref().unwrap_or(BASE_URL),
            path: "/v1/messages",
            credential: self.api_key.as_ref().map(|key| Credential {
                header: "x-api-key",
                prefix: "",
                key,
            }),
            headers: &[("anthropic-version", VERSION)],
            timeouts: self.timeouts,
            rows: ROWS,
        })?
        .extra_body(self.extra_body);
        Ok(AnthropicProvider { endpoint, caches: self.caches })
    }
}

/// Asks Anthropic, or an endpoint that speaks Messages.
#[derive(Debug)]
pub struct AnthropicProvider {
    endpoint: Endpoint,
    caches: bool,
}

impl AnthropicProvider {
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
    /// use provider_anthropic::Anthropic;
    ///
    /// let provider = Anthropic::new("model-1").base_url("http://localhost:8080").build()?;
    /// let body = r#"{"content": [{"type": "text", "text": "42"}], "stop_reason": "end_turn"}"#;
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
            return stream::read(answer.events(), sink).await;
        }
        // An endpoint that cannot stream answers in one piece, and so does a failure.
        let response = response::read(&self.endpoint, answer, sink).await?;
        provider_http::read_aloud(&response, sink);
        Ok(response)
    }
}

#[async_trait]
impl Provider for AnthropicProvider {
    fn name(&self) -> &str {
        NAME
    }

    fn model(&self) -> &str {
        self.endpoint.model()
    }

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let body = MessagesRequest::whole(&self.endpoint, request, self.caches)?;
        let answer = self.endpoint.post(&body, request.sink.as_deref()).await?;
        self.decode(answer, request.sink.as_deref()).await
    }

    async fn stream(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let body = MessagesRequest::streamed(&self.endpoint, request, self.caches)?;
        let answer = self.endpoint.post(&body, request.sink.as_deref()).await?;
        self.decode(answer, request.sink.as_deref()).await
    }
}
