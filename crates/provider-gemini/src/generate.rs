use std::borrow::Cow;

use backstop_provider::{
    ModelRequest, ModelResponse, OutputSupport, ProviderError, SettingsSupport,
};
use backstop_provider_http::{
    Accepts, Endpoint, Events, FailureRule, HttpProvider, HttpProviderBuilder, MessageOrder,
    Protocol, ProviderConfigError, Reply, Stream,
};
use serde::Serialize;

use crate::classify::ROWS;
use crate::request::{GenerateRequest, RequestSettings};
use crate::response::GeminiResponse;
use crate::stream::GenerateStream;

/// The base URL of Google itself.
pub const BASE_URL: &str = "https://generativelanguage.googleapis.com/v1beta";

/// The environment variable that [`Gemini::from_env`] reads the key from.
pub const KEY_VARIABLE: &str = "GEMINI_API_KEY";

/// A builder of a provider that speaks [`GenerateContent`].
///
/// A model is named as `gemini-2.5-flash`, or with its collection if it is not one of Google's own:
/// `tunedModels/mine`.
pub type Gemini = HttpProviderBuilder<GenerateContent>;

/// A provider that calls Google, or another endpoint that speaks [`GenerateContent`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use backstop_provider_gemini::{Gemini, GeminiProvider};
///
/// let provider: GeminiProvider =
///     Gemini::new("model-1").base_url("http://localhost:8080/v1beta").build()?;
/// let body = r#"{"candidates": [{
///     "content": {"parts": [{"text": "42"}]},
///     "finishReason": "STOP"
/// }]}"#;
/// assert_eq!(&*provider.read("application/json", body).await?.text, "42");
/// # Ok(())
/// # }
/// ```
pub type GeminiProvider = HttpProvider<GenerateContent>;

/// Google's protocol, with its own settings.
///
/// ```
/// use backstop_provider_gemini::Gemini;
///
/// let gemini = Gemini::new("gemini-2.5-flash").with(|it| it.includes_thoughts(true));
/// ```
#[derive(Debug, Clone, Default)]
pub struct GenerateContent {
    includes_thoughts: bool,
}

impl GenerateContent {
    /// Sets whether summaries of the model's thinking are requested. Off by default: models that do
    /// not think refuse the request.
    #[must_use]
    pub const fn includes_thoughts(mut self, yes: bool) -> Self {
        self.includes_thoughts = yes;
        self
    }
}

impl Protocol for GenerateContent {
    const NAME: &'static str = "gemini";
    const KEY_VARIABLE: &'static str = KEY_VARIABLE;
    const ROWS: &'static [FailureRule] = ROWS;
    const KEY_HEADER: (&'static str, &'static str) = ("x-goog-api-key", "");
    type Framing = Events;
    type Response = GeminiResponse;
    type Stream = GenerateStream;

    fn base_url(&self) -> Result<Cow<'static, str>, ProviderConfigError> {
        Ok(BASE_URL.into())
    }

    fn path(&self, model: &str, is_streamed: bool) -> String {
        let call = if is_streamed { "streamGenerateContent?alt=sse" } else { "generateContent" };
        format!("/{}:{call}", model_resource(model))
    }

    /// <https://ai.google.dev/api/generate-content#generationconfig>
    fn settings(&self, endpoint: &Endpoint) -> SettingsSupport {
        let seeds = i64::from(i32::MIN)..=i64::from(i32::MAX);
        SettingsSupport::basic()
            .top_p(true)
            .stop(5)
            .seeds(seeds)
            .efforts(RequestSettings::for_model(endpoint.model(), false).efforts())
            .tool_choice(true)
    }

    /// <https://ai.google.dev/gemini-api/docs/structured-output>
    fn output_support(&self, endpoint: &Endpoint, request: &ModelRequest) -> OutputSupport {
        let settings = RequestSettings::for_model(endpoint.model(), self.includes_thoughts);
        match settings.fit_output_schema(request) {
            Some(_) => OutputSupport::Constrained,
            None => OutputSupport::Prompt,
        }
    }

    /// The endpoint's message is "Please ensure that multiturn requests alternate between user and model."
    fn accepts(&self, _: &Endpoint) -> Accepts {
        Accepts::everything().turns(MessageOrder::Alternate)
    }

    fn request<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        request: &'a ModelRequest,
        _is_streamed: bool,
    ) -> Result<impl Serialize + 'a, ProviderError> {
        let settings = RequestSettings::for_model(endpoint.model(), self.includes_thoughts);
        GenerateRequest::new(endpoint, request, settings)
    }

    fn response(
        &self,
        response: GeminiResponse,
        reply: &Reply<'_>,
    ) -> Result<ModelResponse, ProviderError> {
        let mut stream = GenerateStream::default();
        stream.add(response, reply)?;
        stream.finish(reply)
    }

    fn stream(&self) -> GenerateStream {
        GenerateStream::default()
    }
}

/// Returns the model as a part of a URL. A model without a collection belongs to `models`.
fn model_resource(model: &str) -> String {
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
