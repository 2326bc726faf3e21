//! OpenAI Responses, used without state: nothing is stored at the provider.

mod draft;
mod items;
mod paragraph;
mod phase;
mod request;
mod response;
mod served;
mod stream;

use std::borrow::Cow;

use backstop_provider::{
    ModelRequest, ModelResponse, OutputSupport, ProviderError, SettingsSupport,
};
use backstop_provider_http::{
    Accepts, CallIds, Endpoint, Events, FailureRule, HttpProvider, HttpProviderBuilder, Protocol,
    ProviderConfigError, Reply,
};
use serde::Serialize;

use self::draft::ItemsDraft;
use self::request::{ReasoningSettings, ResponsesRequest};
use self::response::WireResponse;
use self::stream::ResponsesStream;
use crate::classify::ROWS;
use crate::own::{BASE_URL, EFFORTS, KEY_VARIABLE, azure_path, key_header, output_support};

/// A builder of a provider that speaks [`Responses`].
///
/// ```
/// use backstop_provider_openai::OpenAiResponses;
///
/// let local = OpenAiResponses::new("gpt-oss").base_url("http://localhost:8080/v1").build()?;
/// # Ok::<(), backstop_provider_http::ProviderConfigError>(())
/// ```
pub type OpenAiResponses = HttpProviderBuilder<Responses>;

/// A provider that calls OpenAI, or another endpoint that speaks [`Responses`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use backstop_provider_openai::{OpenAiResponses, OpenAiResponsesProvider};
///
/// let provider: OpenAiResponsesProvider =
///     OpenAiResponses::new("m").base_url("http://localhost:8080/v1").build()?;
/// let body = r#"{"status": "completed", "output": [
///     {"type": "message", "content": [{"type": "output_text", "text": "42"}]}
/// ]}"#;
/// assert_eq!(&*provider.read("application/json", body).await?.text, "42");
/// # Ok(())
/// # }
/// ```
pub type OpenAiResponsesProvider = HttpProvider<Responses>;

/// OpenAI's newer protocol, with its own settings.
///
/// ```
/// use backstop_provider_openai::OpenAiResponses;
///
/// let openai = OpenAiResponses::new("gpt-5").with(|it| it.reasoning_summaries(true));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Responses {
    summaries: bool,
    encrypted: Option<bool>,
    api_version: Option<String>,
}

impl Responses {
    /// Sets whether summaries of the model's thinking are requested. They are not by default:
    /// models that do not reason refuse the setting, and OpenAI returns them only to verified
    /// organisations.
    #[must_use]
    pub const fn reasoning_summaries(mut self, yes: bool) -> Self {
        self.summaries = yes;
        self
    }

    /// Sets whether the model's reasoning is requested in encrypted form, and sent back with the
    /// calls it led to: nothing is stored at the provider, so it would be lost otherwise. By
    /// default it is requested from OpenAI's reasoning models; others refuse it.
    #[must_use]
    pub const fn encrypted_reasoning(mut self, yes: bool) -> Self {
        self.encrypted = Some(yes);
        self
    }

    /// Sets the API version of Azure, sent as `?api-version=…`; the key is sent as `api-key` then.
    /// The base URL is `https://NAME.openai.azure.com/openai`.
    #[must_use]
    pub fn api_version(mut self, version: impl Into<String>) -> Self {
        self.api_version = Some(version.into());
        self
    }
}

impl Protocol for Responses {
    const NAME: &'static str = "openai-responses";
    const KEY_VARIABLE: &'static str = KEY_VARIABLE;
    const ROWS: &'static [FailureRule] = ROWS;
    type Framing = Events;
    type Response = WireResponse;
    type Stream = ResponsesStream;

    fn base_url(&self) -> Result<Cow<'static, str>, ProviderConfigError> {
        Ok(BASE_URL.into())
    }

    fn path(&self, _model: &str, _is_streamed: bool) -> String {
        azure_path("/responses", self.api_version.as_deref())
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        key_header(self.api_version.as_deref())
    }

    /// <https://platform.openai.com/docs/api-reference/responses/create>
    fn settings(&self, _: &Endpoint) -> SettingsSupport {
        SettingsSupport::basic().top_p(true).efforts(EFFORTS).tool_choice(true)
    }

    fn output_support(&self, endpoint: &Endpoint, request: &ModelRequest) -> OutputSupport {
        output_support(endpoint, request)
    }

    /// The endpoint's message is `Invalid 'input[1].call_id': string too long. Expected a string
    /// with maximum length 64`.
    fn accepts(&self, _: &Endpoint) -> Accepts {
        Accepts::everything().call_ids(CallIds::up_to(64))
    }

    fn request<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        request: &'a ModelRequest,
        is_streamed: bool,
    ) -> Result<impl Serialize + 'a, ProviderError> {
        let encrypted = self.encrypted.unwrap_or_else(|| reasons(endpoint.model()));
        let reasoning = ReasoningSettings { summaries: self.summaries, encrypted };
        ResponsesRequest::new(endpoint, request, reasoning, is_streamed)
    }

    fn response(
        &self,
        response: WireResponse,
        reply: &Reply<'_>,
    ) -> Result<ModelResponse, ProviderError> {
        ItemsDraft::default().end(response, reply)
    }

    fn stream(&self) -> ResponsesStream {
        ResponsesStream::default()
    }
}

/// Returns whether this is a reasoning model of OpenAI:
/// <https://platform.openai.com/docs/guides/reasoning>.
fn reasons(model: &str) -> bool {
    let chats = model.contains("-chat");
    !chats && ["gpt-5", "o1", "o3", "o4", "codex"].iter().any(|name| model.starts_with(name))
}
