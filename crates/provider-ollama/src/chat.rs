use std::borrow::Cow;

use backstop_provider::{
    ModelRequest, ModelResponse, OutputSupport, ProviderError, ReasoningEffort, SettingsSupport,
};
use backstop_provider_http::{
    Accepts, ApiKey, Endpoint, FailureRule, HttpProvider, HttpProviderBuilder, JsonSplitter,
    MessageOrder, Protocol, ProviderConfigError, Reply, Stream,
};
use serde::Serialize;

use crate::classify::ROWS;
use crate::request::OllamaRequest;
use crate::response::Chunk;
use crate::stream::OllamaStream;

/// The base URL of a server on this machine.
pub const BASE_URL: &str = "http://localhost:11434";

/// The base URL of the hosted service.
pub const HOSTED_URL: &str = "https://ollama.com";

/// The environment variable that [`Ollama::from_env`] reads the key of the hosted service from.
pub const KEY_VARIABLE: &str = "OLLAMA_API_KEY";

/// The levels of `think`, <https://docs.ollama.com/capabilities/thinking>.
const EFFORTS: &[ReasoningEffort] =
    &[ReasoningEffort::None, ReasoningEffort::Low, ReasoningEffort::Medium, ReasoningEffort::High];

/// A builder of a provider that speaks [`OllamaChat`].
///
/// Its model runs on this machine, which needs no key; [`from_env`](HttpProviderBuilder::from_env)
/// makes one for the hosted service, at [`HOSTED_URL`].
pub type Ollama = HttpProviderBuilder<OllamaChat>;

/// A provider that calls an Ollama server.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use backstop_provider_ollama::{Ollama, OllamaProvider};
///
/// let provider: OllamaProvider = Ollama::new("qwen3").build()?;
/// let body = r#"{"message": {"content": "42"}, "done": true, "done_reason": "stop"}"#;
/// assert_eq!(&*provider.read("application/json", body).await?.text, "42");
/// # Ok(())
/// # }
/// ```
pub type OllamaProvider = HttpProvider<OllamaChat>;

/// Ollama's own protocol, with its settings.
///
/// ```
/// use backstop_provider_ollama::Ollama;
///
/// let local = Ollama::new("qwen3").with(|it| it.context_tokens(32_768)).build()?;
/// # Ok::<(), backstop_provider_http::ProviderConfigError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct OllamaChat {
    is_hosted: bool,
    context_tokens: Option<u32>,
}

impl OllamaChat {
    /// Sets the most tokens of conversation and answer together. Ollama's own default is small; a
    /// longer conversation is a [`ProviderError::ContextOverflow`].
    #[must_use]
    pub const fn context_tokens(mut self, tokens: u32) -> Self {
        self.context_tokens = Some(tokens);
        self
    }
}

impl Protocol for OllamaChat {
    const NAME: &'static str = "ollama";
    const KEY_VARIABLE: &'static str = KEY_VARIABLE;
    const NEEDS_KEY: bool = false;
    const ROWS: &'static [FailureRule] = ROWS;
    type Framing = JsonSplitter;
    type Response = Chunk;
    type Stream = OllamaStream;

    fn from_env() -> Result<(Self, Option<ApiKey>), ProviderConfigError> {
        let hosted = Self { is_hosted: true, ..Self::default() };
        Ok((hosted, Some(ApiKey::from_env(KEY_VARIABLE)?)))
    }

    fn base_url(&self) -> Result<Cow<'static, str>, ProviderConfigError> {
        Ok(if self.is_hosted { HOSTED_URL } else { BASE_URL }.into())
    }

    fn path(&self, _model: &str, _is_streamed: bool) -> String {
        "/api/chat".to_owned()
    }

    /// <https://docs.ollama.com/api/chat>
    fn settings(&self, _: &Endpoint) -> SettingsSupport {
        SettingsSupport::basic()
            .top_p(true)
            .stop(usize::MAX)
            .seeds(i64::MIN..=i64::MAX)
            .efforts(EFFORTS)
    }

    /// A model that must match a schema calls no tool, so the schema is enforced only in a request
    /// without tools.
    fn output_support(&self, _: &Endpoint, request: &ModelRequest) -> OutputSupport {
        match request.output.is_some() && request.tools.is_empty() {
            true => OutputSupport::Constrained,
            false => OutputSupport::Prompt,
        }
    }

    /// Templates of many models refuse other orders.
    fn accepts(&self, _: &Endpoint) -> Accepts {
        Accepts::everything().turns(MessageOrder::Alternate)
    }

    fn request<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        request: &'a ModelRequest,
        is_streamed: bool,
    ) -> Result<impl Serialize + 'a, ProviderError> {
        OllamaRequest::new(endpoint, request, self.context_tokens, is_streamed)
    }

    fn response(&self, chunk: Chunk, reply: &Reply<'_>) -> Result<ModelResponse, ProviderError> {
        if !chunk.is_answer() {
            return Err(reply.invalid_response("an answer without a message"));
        }
        let mut stream = OllamaStream::default();
        stream.add(chunk, reply);
        stream.finish(reply)
    }

    fn stream(&self) -> OllamaStream {
        OllamaStream::default()
    }
}
