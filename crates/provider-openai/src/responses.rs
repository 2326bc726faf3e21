//! OpenAI Responses, used without state: nothing is kept at the provider.

mod draft;
mod items;
mod request;
mod response;
mod stream;

use std::sync::Arc;

use async_trait::async_trait;
use provider::{ModelRequest, ModelResponse, Provider, ProviderError, StreamSink};
use provider_http::{Answer, ApiKey, ConfigError, Endpoint, Timeouts};
use serde_json::{Map, Value};

use self::request::{ReasoningSettings, ResponsesRequest};
use crate::place::{KEY_VARIABLE, Place};

const NAME: &str = "openai-responses";

/// Sets up a provider that speaks Responses.
///
/// ```
/// use provider_openai::OpenAiResponses;
///
/// let local = OpenAiResponses::new("gpt-oss").base_url("http://localhost:8080/v1").build()?;
/// # Ok::<(), provider_http::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
pub struct OpenAiResponses {
    model: Arc<str>,
    base_url: Option<String>,
    api_key: Option<ApiKey>,
    timeouts: Timeouts,
    extra_body: Map<String, Value>,
    reasoning_summaries: bool,
    encrypted_reasoning: Option<bool>,
}

impl OpenAiResponses {
    /// Names the model. No key is read from the environment: a key meant for OpenAI must not
    /// travel to another base URL unasked.
    pub fn new(model: impl Into<Arc<str>>) -> Self {
        Self {
            model: model.into(),
            base_url: None,
            api_key: None,
            timeouts: Timeouts::default(),
            extra_body: Map::new(),
            reasoning_summaries: false,
            encrypted_reasoning: None,
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

    /// Sends to another endpoint than [`BASE_URL`](crate::BASE_URL); `/responses` is appended.
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

    /// Asks for summaries of what the model thinks. By default none are asked for: models that do
    /// not reason refuse the question, and OpenAI tells them only to verified organisations.
    #[must_use]
    pub const fn reasoning_summaries(mut self, yes: bool) -> Self {
        self.reasoning_summaries = yes;
        self
    }

    /// Says whether the model's reasoning is asked for in encrypted form, and sent back with the calls
    /// it led to: nothing is stored at the provider, so it would be lost otherwise. By default that
    /// is asked of OpenAI's models that reason; others refuse the question.
    #[must_use]
    pub const fn encrypted_reasoning(mut self, yes: bool) -> Self {
        self.encrypted_reasoning = Some(yes);
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
    pub fn build(self) -> Result<OpenAiResponsesProvider, ConfigError> {
        let endpoint = Place {
            provider: NAME,
            model: &self.model,
            base_url: self.base_url.as_deref(),
            path: "/responses",
            api_key: self.api_key.as_ref(),
            timeouts: self.timeouts,
        }
        .open()?
        .extra_body(self.extra_body);
        let reasoning = ReasoningSettings {
            summaries: self.reasoning_summaries,
            encrypted: self.encrypted_reasoning.unwrap_or_else(|| reasons(&self.model)),
        };
        Ok(OpenAiResponsesProvider { endpoint, reasoning })
    }
}

/// Is it a model of OpenAI's that reasons? <https://platform.openai.com/docs/guides/reasoning>
fn reasons(model: &str) -> bool {
    let chats = model.contains("-chat");
    !chats && ["gpt-5", "o1", "o3", "o4", "codex"].iter().any(|name| model.starts_with(name))
}

/// Asks an endpoint that speaks Responses.
#[derive(Debug)]
pub struct OpenAiResponsesProvider {
    endpoint: Endpoint,
    reasoning: ReasoningSettings,
}

impl OpenAiResponsesProvider {
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
    /// use provider_openai::OpenAiResponses;
    ///
    /// let provider = OpenAiResponses::new("m").base_url("http://localhost:8080/v1").build()?;
    /// let body = r#"{"status": "completed", "output": [
    ///     {"type": "message", "content": [{"type": "output_text", "text": "42"}]}
    /// ]}"#;
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

    fn body<'a>(
        &'a self,
        request: &'a ModelRequest,
    ) -> Result<ResponsesRequest<'a>, ProviderError> {
        ResponsesRequest::whole(&self.endpoint, request, self.reasoning)
    }
}

#[async_trait]
impl Provider for OpenAiResponsesProvider {
    fn name(&self) -> &str {
        NAME
    }

    fn model(&self) -> &str {
        self.endpoint.model()
    }

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let body = self.body(request)?;
        let answer = self.endpoint.post(&body, request.sink.as_deref()).await?;
        self.decode(answer, request.sink.as_deref()).await
    }

    async fn stream(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let body = self.body(request)?.streamed();
        let answer = self.endpoint.post(&body, request.sink.as_deref()).await?;
        self.decode(answer, request.sink.as_deref()).await
    }
}
