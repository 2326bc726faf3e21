use std::sync::Arc;

use async_trait::async_trait;
use provider::{ModelRequest, ModelResponse, Provider, ProviderError, StreamSink};
use provider_http::{
    Answer, ApiKey, ConfigError, Credential, Endpoint, EndpointSettings, Timeouts,
};
use serde_json::{Map, Value};

use crate::classify::ROWS;
use crate::request::{GenerateRequest, RequestSettings};
use crate::{response, stream};

/// Where Google itself answers.
pub const BASE_URL: &str = "https://generativelanguage.googleapis.com/v1beta";

/// The environment variable that [`Gemini::from_env`] reads the key from.
pub const KEY_VARIABLE: &str = "GEMINI_API_KEY";

const NAME: &str = "gemini";

/// Sets up a provider.
#[derive(Debug, Clone)]
pub struct Gemini {
    model: Arc<str>,
    base_url: Option<String>,
    api_key: Option<ApiKey>,
    timeouts: Timeouts,
    extra_body: Map<String, Value>,
    includes_thoughts: bool,
}

impl Gemini {
    /// Names the model, as `gemini-2.5-flash` or, where it is no model of Google's own, with its
    /// collection: `tunedModels/mine`. No key is read from the environment: a key meant for Google
    /// must not travel to another base URL unasked.
    pub fn new(model: impl Into<Arc<str>>) -> Self {
        Self {
            model: model.into(),
            base_url: None,
            api_key: None,
            timeouts: Timeouts::default(),
            extra_body: Map::new(),
            includes_thoughts: false,
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

    /// Sends to another endpoint than [`BASE_URL`]; `/models/MODEL:generateContent` is
    /// appended.
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

    /// Asks for summaries of what the model thinks. Off by default: models that do not think refuse
    /// to be asked.
    #[must_use]
    pub const fn includes_thoughts(mut self, yes: bool) -> Self {
        self.includes_thoughts = yes;
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
    pub fn build(self) -> Result<GeminiProvider, ConfigError> {
        if self.api_key.is_none() && self.base_url.is_none() {
            return Err(ConfigError::missing_key(KEY_VARIABLE));
        }
        let resource = resource_of(&self.model);
        let whole_path = format!("/{resource}:generateContent");
        let streamed_path = format!("/{resource}:streamGenerateContent?alt=sse");
        let settings = EndpointSettings {
            provider: NAME,
            model: &self.model,
            base_url: self.base_url.as_deref().unwrap_or(BASE_URL),
            path: &whole_path,
            credential: self.api_key.as_ref().map(|key| Credential {
                header: "x-goog-api-key",
                prefix: "",
                key,
            }),
            headers: &[],
            timeouts: self.timeouts,
            rows: ROWS,
        };
        let whole = Endpoint::open(&settings)?.extra_body(self.extra_body);
        let streamed = whole.beside(&EndpointSettings { path: &streamed_path, ..settings })?;
        let settings = RequestSettings::of(&self.model, self.includes_thoughts);
        Ok(GeminiProvider { whole, streamed, settings })
    }
}

/// Returns the model as a part of a URL. A model without a collection is one of `models`.
fn resource_of(model: &str) -> String {
    let mut resource = if model.contains('/') { String::new() } else { "models/".to_owned() };
    for byte in model.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                resource.push(char::from(byte));
            }
            other => resource.push_str(&format!("%{other:02X}")),
        }
    }
    resource
}

/// Asks Google, or an endpoint that speaks `generateContent`.
#[derive(Debug)]
pub struct GeminiProvider {
    whole: Endpoint,
    streamed: Endpoint,
    settings: RequestSettings,
}

impl GeminiProvider {
    /// Returns how long each phase may take. The layer around applies `attempt`.
    #[must_use]
    pub const fn timeouts(&self) -> Timeouts {
        self.whole.timeouts()
    }

    /// Reads an answer that is here already, such as a recorded one, just as
    /// [`stream`](Provider::stream) reads one from the wire: whole where the content type is JSON or
    /// HTML, as events otherwise. Nothing is sent.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use provider_gemini::Gemini;
    ///
    /// let provider = Gemini::new("model-1").base_url("http://localhost:8080/v1beta").build()?;
    /// let body = r#"{"candidates": [{
    ///     "content": {"parts": [{"text": "42"}]},
    ///     "finishReason": "STOP"
    /// }]}"#;
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
        self.decode(self.whole.recorded(content_type, body), None).await
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
        let response = response::read(&self.whole, answer, sink).await?;
        provider_http::read_aloud(&response, sink);
        Ok(response)
    }
}

#[async_trait]
impl Provider for GeminiProvider {
    fn name(&self) -> &str {
        NAME
    }

    fn model(&self) -> &str {
        self.whole.model()
    }

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let body = GenerateRequest::new(&self.whole, request, self.settings)?;
        let answer = self.whole.post(&body, request.sink.as_deref()).await?;
        self.decode(answer, request.sink.as_deref()).await
    }

    async fn stream(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let body = GenerateRequest::new(&self.whole, request, self.settings)?;
        let answer = self.streamed.post(&body, request.sink.as_deref()).await?;
        self.decode(answer, request.sink.as_deref()).await
    }
}
