use std::sync::Arc;

use async_trait::async_trait;
use provider::{ModelRequest, ModelResponse, Provider, ProviderError, StreamSink};
use provider_http::{
    Answer, ApiKey, ConfigError, Credential, Endpoint, EndpointSettings, Timeouts,
};
use serde_json::{Map, Value};

use crate::classify::ROWS;
use crate::request::ChatRequest;
use crate::{response, stream};

/// Where a server on this machine answers.
pub const BASE_URL: &str = "http://localhost:11434";

/// Where the hosted service answers.
pub const HOSTED_URL: &str = "https://ollama.com";

/// The environment variable that [`Ollama::from_env`] reads the key of the hosted service from.
pub const KEY_VARIABLE: &str = "OLLAMA_API_KEY";

const NAME: &str = "ollama";

/// Sets up a provider.
#[derive(Debug, Clone)]
pub struct Ollama {
    model: Arc<str>,
    base_url: Option<String>,
    api_key: Option<ApiKey>,
    timeouts: Timeouts,
    extra_body: Map<String, Value>,
    context_tokens: Option<u32>,
}

impl Ollama {
    /// Names the model, which runs on this machine unless a base URL says otherwise. No key is read
    /// from the environment: a key meant for the hosted service must not travel elsewhere unasked.
    pub fn new(model: impl Into<Arc<str>>) -> Self {
        Self {
            model: model.into(),
            base_url: None,
            api_key: None,
            timeouts: Timeouts::default(),
            extra_body: Map::new(),
            context_tokens: None,
        }
    }

    /// Names a model of the hosted service and takes the key from [`KEY_VARIABLE`]. It is sent to
    /// [`HOSTED_URL`].
    ///
    /// # Errors
    ///
    /// As [`ApiKey::from_env`].
    pub fn from_env(model: impl Into<Arc<str>>) -> Result<Self, ConfigError> {
        let key = ApiKey::from_env(KEY_VARIABLE)?;
        Ok(Self::new(model).base_url(HOSTED_URL).api_key(key))
    }

    /// Sends to another server than the one at [`BASE_URL`]; `/api/chat` is appended.
    #[must_use]
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// Sets the key. A server of one's own needs none.
    #[must_use]
    pub fn api_key(mut self, key: impl Into<ApiKey>) -> Self {
        self.api_key = Some(key.into());
        self
    }

    /// Sets how long each phase may take. The first byte may take as long as loading the model does.
    #[must_use]
    pub const fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Sets how many tokens conversation and answer may have together. Ollama's own default is small;
    /// a longer conversation is [`ProviderError::ContextOverflow`].
    #[must_use]
    pub const fn context_tokens(mut self, tokens: u32) -> Self {
        self.context_tokens = Some(tokens);
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
    /// [`ConfigError::InvalidKey`], [`ConfigError::InvalidBaseUrl`], [`ConfigError::Client`].
    pub fn build(self) -> Result<OllamaProvider, ConfigError> {
        let endpoint = Endpoint::open(&EndpointSettings {
            provider: NAME,
            model: &self.model,
            base_url: self.base_url.as_deref().unwrap_or(BASE_URL),
            path: "/api/chat",
            credential: self.api_key.as_ref().map(|key| Credential {
                header: "authorization",
                prefix: "Bearer ",
                key,
            }),
            headers: &[],
            timeouts: self.timeouts,
            rows: ROWS,
        })?
        .extra_body(self.extra_body);
        Ok(OllamaProvider { endpoint, context_tokens: self.context_tokens })
    }
}

/// Asks an Ollama server.
#[derive(Debug)]
pub struct OllamaProvider {
    endpoint: Endpoint,
    context_tokens: Option<u32>,
}

impl OllamaProvider {
    /// Returns how long each phase may take. The layer around applies `attempt`.
    #[must_use]
    pub const fn timeouts(&self) -> Timeouts {
        self.endpoint.timeouts()
    }

    /// Reads an answer that is here already, such as a recorded one, just as
    /// [`stream`](Provider::stream) reads one from the wire: as values, each on a line or over several.
    /// Nothing is sent.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use provider_ollama::Ollama;
    ///
    /// let provider = Ollama::new("qwen3").build()?;
    /// let body = r#"{"message": {"content": "42"}, "done": true, "done_reason": "stop"}"#;
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
        answer: Answer<'_>,
        sink: Option<&dyn StreamSink>,
    ) -> Result<ModelResponse, ProviderError> {
        if answer.is_html() {
            return response::read(&self.endpoint, answer, sink).await;
        }
        // An answer in one piece, as of a proxy that cannot stream, is a stream of one value.
        stream::read(answer.lines(), sink).await
    }
}

#[async_trait]
impl Provider for OllamaProvider {
    fn name(&self) -> &str {
        NAME
    }

    fn model(&self) -> &str {
        self.endpoint.model()
    }

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let body = ChatRequest::whole(self.endpoint.model(), request, self.context_tokens)?;
        let answer = self.endpoint.post(&body, request.sink.as_deref()).await?;
        response::read(&self.endpoint, answer, request.sink.as_deref()).await
    }

    async fn stream(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let body = ChatRequest::streamed(self.endpoint.model(), request, self.context_tokens)?;
        let answer = self.endpoint.post(&body, request.sink.as_deref()).await?;
        self.decode(answer, request.sink.as_deref()).await
    }
}
