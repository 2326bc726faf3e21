use std::borrow::Cow;

use backstop_provider::{
    ModelRequest, ModelResponse, OutputSupport, ProviderError, ReasoningEffort, SettingsSupport,
};
use backstop_provider_http::{
    Accepts, CallIds, Endpoint, Events, FailureRule, HttpProvider, HttpProviderBuilder,
    MessageOrder, Protocol, ProviderConfigError, Reply, claude_form,
};
use serde::Serialize;

use crate::classify::ROWS;

use crate::request::MessagesRequest;
use crate::response::AnthropicResponse;
use crate::stream::MessagesStream;

/// The base URL of Anthropic itself.
pub const BASE_URL: &str = "https://api.anthropic.com";

/// The environment variable that [`Anthropic::from_env`] reads the key from.
pub const KEY_VARIABLE: &str = "ANTHROPIC_API_KEY";

/// The version of the protocol, <https://docs.anthropic.com/en/api/versioning>.
const VERSION: &str = "2023-06-01";

/// The limits, in the API's own messages: "tool_use.id: String should match pattern
/// '^[a-zA-Z0-9_-]+$'", "input_schema.properties: Property keys should match pattern
/// '^[a-zA-Z0-9_.-]{1,64}$'" and "Requests which include `tool_use` or `tool_result` blocks must
/// define tools".
const ACCEPTS: Accepts = Accepts::everything()
    .call_ids(CallIds::up_to(64))
    .turns(MessageOrder::BeginWithUser)
    .plain_keys()
    .needs_called_tools();

/// The levels of effort in the protocol; not every model supports all of them:
/// <https://platform.claude.com/docs/en/build-with-claude/effort>.
const EFFORTS: &[ReasoningEffort] = &[
    ReasoningEffort::Low,
    ReasoningEffort::Medium,
    ReasoningEffort::High,
    ReasoningEffort::XHigh,
    ReasoningEffort::Max,
];

/// A builder of a provider that speaks [`Messages`].
pub type Anthropic = HttpProviderBuilder<Messages>;

/// A provider that calls Anthropic, or another endpoint that speaks [`Messages`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use backstop_provider_anthropic::{Anthropic, AnthropicProvider};
///
/// let provider: AnthropicProvider =
///     Anthropic::new("model-1").base_url("http://localhost:8080").build()?;
/// let body = r#"{"content": [{"type": "text", "text": "42"}], "stop_reason": "end_turn"}"#;
/// assert_eq!(&*provider.read("application/json", body).await?.text, "42");
/// # Ok(())
/// # }
/// ```
pub type AnthropicProvider = HttpProvider<Messages>;

/// Anthropic's protocol, with its own settings.
///
/// ```
/// use backstop_provider_anthropic::Anthropic;
///
/// let anthropic = Anthropic::new("claude-sonnet-4-5").with(|it| it.caches_prompts(false));
/// ```
#[derive(Debug, Clone)]
pub struct Messages {
    caches: bool,
}

impl Default for Messages {
    fn default() -> Self {
        Self { caches: true }
    }
}

impl Messages {
    /// Sets whether the tools, the instructions and the conversation so far are marked for caching,
    /// as they are by default: an agent sends them again with every turn.
    ///
    /// Tokens written to the cache cost a quarter more, tokens read from it a tenth.
    #[must_use]
    pub const fn caches_prompts(mut self, yes: bool) -> Self {
        self.caches = yes;
        self
    }
}

impl Protocol for Messages {
    const NAME: &'static str = "anthropic";
    const KEY_VARIABLE: &'static str = KEY_VARIABLE;
    const ROWS: &'static [FailureRule] = ROWS;
    const KEY_HEADER: (&'static str, &'static str) = ("x-api-key", "");
    const HEADERS: &'static [(&'static str, &'static str)] = &[("anthropic-version", VERSION)];
    type Framing = Events;
    type Response = AnthropicResponse;
    type Stream = MessagesStream;

    fn base_url(&self) -> Result<Cow<'static, str>, ProviderConfigError> {
        Ok(BASE_URL.into())
    }

    fn path(&self, _model: &str, _is_streamed: bool) -> String {
        "/v1/messages".to_owned()
    }

    /// <https://platform.claude.com/docs/en/api/messages/create>
    fn settings(&self, _: &Endpoint) -> SettingsSupport {
        SettingsSupport::basic()
            .max_temperature(1.0)
            .top_p(true)
            .stop(usize::MAX)
            .efforts(EFFORTS)
            .tool_choice(true)
    }

    fn output_support(&self, endpoint: &Endpoint, request: &ModelRequest) -> OutputSupport {
        let form = request.output.as_ref().and_then(|output| claude_form(endpoint.model(), output));
        form.map_or(OutputSupport::Prompt, |_| OutputSupport::Native)
    }

    fn accepts(&self, _: &Endpoint) -> Accepts {
        ACCEPTS
    }

    fn request<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        request: &'a ModelRequest,
        is_streamed: bool,
    ) -> Result<impl Serialize + 'a, ProviderError> {
        MessagesRequest::new(endpoint, request, self.caches, is_streamed)
    }

    fn response(
        &self,
        response: AnthropicResponse,
        reply: &Reply<'_>,
    ) -> Result<ModelResponse, ProviderError> {
        response.read(reply)
    }

    fn stream(&self) -> MessagesStream {
        MessagesStream::default()
    }
}
