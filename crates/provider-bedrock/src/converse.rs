use std::borrow::Cow;
use std::sync::Arc;

use backstop_provider::{
    ModelRequest, ModelResponse, OutputSupport, ProviderError, ReasoningEffort, SettingsSupport,
};
use backstop_provider_http::{
    Accepts, ApiKey, CallIds, Endpoint, FailureRule, HttpProvider, HttpProviderBuilder,
    MessageOrder, Protocol, ProviderConfigError, Reply, Sign,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use crate::classify::ROWS;
use crate::frames::Frames;
use crate::request::{ConverseRequest, fit_output_schema};
use crate::response::BedrockResponse;
use crate::sign::{ACCESS_KEY_VARIABLE, AwsCredentials, SigV4};
use crate::stream::ConverseStream;

/// The environment variable that [`Bedrock::from_env`] reads an API key of Bedrock from.
pub const BEARER_VARIABLE: &str = "AWS_BEARER_TOKEN_BEDROCK";

/// The environment variables that [`Bedrock::from_env`] reads the region from, in this order.
pub const REGION_VARIABLES: [&str; 2] = ["AWS_REGION", "AWS_DEFAULT_REGION"];

/// The name of Bedrock in signatures.
const SERVICE: &str = "bedrock";

/// The limits: ids
/// (<https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolUseBlock.html>), and,
/// in the API's own messages, "roles must alternate" and "The toolConfig field must be defined when
/// using toolUse and toolResult content blocks".
const ACCEPTS: Accepts = Accepts::everything()
    .call_ids(CallIds::up_to(64))
    .turns(MessageOrder::Alternate)
    .plain_keys()
    .needs_called_tools();

/// The characters that a path segment does not escape.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InferenceConfiguration.html>
const MAX_STOP_SEQUENCES: usize = 2_500;

/// The levels of effort in the protocol,
/// <https://docs.aws.amazon.com/sdk-for-python/v1/reference/clients/bedrock-runtime/structures/OutputConfig/>.
const EFFORTS: &[ReasoningEffort] = &[
    ReasoningEffort::Low,
    ReasoningEffort::Medium,
    ReasoningEffort::High,
    ReasoningEffort::XHigh,
    ReasoningEffort::Max,
];

/// A builder of a provider that speaks [`Converse`].
///
/// A model is named by its id, by that of an inference profile, or by an ARN. An API key of
/// Bedrock, a bearer token, is sent instead of signatures.
///
/// [`from_env`](HttpProviderBuilder::from_env) reads the API key from [`BEARER_VARIABLE`] if it is
/// set, otherwise [`AwsCredentials::from_env`]; and the region from [`REGION_VARIABLES`], if one is
/// set.
pub type Bedrock = HttpProviderBuilder<Converse>;

/// A provider that calls Bedrock, or another endpoint that speaks [`Converse`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use backstop_provider_bedrock::{Bedrock, BedrockProvider};
///
/// let provider: BedrockProvider =
///     Bedrock::new("model-1").base_url("http://localhost:8080").build()?;
/// let body = r#"{"output": {"message": {"role": "assistant", "content": [{"text": "42"}]}},
///                "stopReason": "end_turn"}"#;
/// assert_eq!(&*provider.read("application/json", body).await?.text, "42");
/// # Ok(())
/// # }
/// ```
pub type BedrockProvider = HttpProvider<Converse>;

/// Bedrock's protocol, with its own settings: the region, and the credentials for signing.
#[derive(Debug, Clone, Default)]
pub struct Converse {
    region: Option<String>,
    credentials: Option<AwsCredentials>,
    is_uncached: bool,
}

impl Converse {
    /// Sets the region, such as `eu-central-1`. It is required for signing, and without a base URL.
    #[must_use]
    pub fn region(mut self, region: impl Into<String>) -> Self {
        self.region = Some(region.into());
        self
    }

    /// Sets the region from the first of [`REGION_VARIABLES`] that is set, if any.
    #[must_use]
    pub fn region_from_env(mut self) -> Self {
        let regions = REGION_VARIABLES.iter().filter_map(|name| std::env::var(name).ok());
        let mut regions = regions.map(|region| region.trim().to_owned());
        self.region = regions.find(|region| !region.is_empty()).or(self.region);
        self
    }

    /// Sets the credentials for signing requests, used without an API key.
    #[must_use]
    pub fn credentials(mut self, credentials: AwsCredentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// Sets whether the tools, the instructions and the conversation so far are marked for caching,
    /// as they are by default for Claude: an agent sends them again with every turn.
    ///
    /// Models of other makers are sent no marks, which some of them refuse.
    #[must_use]
    pub const fn caches_prompts(mut self, yes: bool) -> Self {
        self.is_uncached = !yes;
        self
    }

    fn needed_region(&self) -> Result<&str, ProviderConfigError> {
        let missing = || ProviderConfigError::missing_setting("region", REGION_VARIABLES[0]);
        self.region.as_deref().ok_or_else(missing)
    }
}

impl Protocol for Converse {
    const NAME: &'static str = "bedrock";
    const KEY_VARIABLE: &'static str = ACCESS_KEY_VARIABLE;
    const ROWS: &'static [FailureRule] = ROWS;
    const KIND_HEADER: Option<&'static str> = Some("x-amzn-errortype");
    type Framing = Frames;
    type Response = BedrockResponse;
    type Stream = ConverseStream;

    fn from_env() -> Result<(Self, Option<ApiKey>), ProviderConfigError> {
        let converse = Self::default().region_from_env();
        match ApiKey::from_env(BEARER_VARIABLE) {
            Ok(key) => Ok((converse, Some(key))),
            Err(ProviderConfigError::MissingKey { .. } | ProviderConfigError::EmptyKey { .. }) => {
                Ok((converse.credentials(AwsCredentials::from_env()?), None))
            }
            Err(error) => Err(error),
        }
    }

    fn base_url(&self) -> Result<Cow<'static, str>, ProviderConfigError> {
        Ok(region_url(self.needed_region()?)?.into())
    }

    fn path(&self, model: &str, is_streamed: bool) -> String {
        let call = if is_streamed { "converse-stream" } else { "converse" };
        format!("/model/{}/{call}", utf8_percent_encode(model, SEGMENT))
    }

    fn signer(&self) -> Result<Option<Arc<dyn Sign>>, ProviderConfigError> {
        let Some(credentials) = &self.credentials else { return Ok(None) };
        credentials.check()?;
        let region = self.needed_region()?.to_owned();
        Ok(Some(Arc::new(SigV4 { credentials: credentials.clone(), region, service: SERVICE })))
    }

    fn secrets(&self) -> Vec<&ApiKey> {
        self.credentials.iter().flat_map(AwsCredentials::secrets).collect()
    }

    /// <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html>
    fn settings(&self, _: &Endpoint) -> SettingsSupport {
        SettingsSupport::basic()
            .max_temperature(1.0)
            .top_p(true)
            .stop(MAX_STOP_SEQUENCES)
            .efforts(EFFORTS)
            .tool_choice(false)
    }

    fn output_support(&self, endpoint: &Endpoint, request: &ModelRequest) -> OutputSupport {
        let form =
            request.output.as_ref().and_then(|output| fit_output_schema(endpoint.model(), output));
        form.map_or(OutputSupport::Prompt, |_| OutputSupport::Native)
    }

    fn accepts(&self, _: &Endpoint) -> Accepts {
        ACCEPTS
    }

    fn request<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        request: &'a ModelRequest,
        _is_streamed: bool,
    ) -> Result<impl Serialize + 'a, ProviderError> {
        let caches = !self.is_uncached && endpoint.model().contains("anthropic.claude");
        ConverseRequest::new(endpoint, request, caches)
    }

    fn response(
        &self,
        response: BedrockResponse,
        reply: &Reply<'_>,
    ) -> Result<ModelResponse, ProviderError> {
        response.read(reply)
    }

    fn stream(&self) -> ConverseStream {
        ConverseStream::default()
    }
}

/// Returns the endpoint of a region; refuses a region that would change the host.
fn region_url(region: &str) -> Result<String, ProviderConfigError> {
    let url = format!("https://bedrock-runtime.{region}.amazonaws.com");
    if region.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') && !region.is_empty() {
        Ok(url)
    } else {
        Err(ProviderConfigError::invalid_base_url(
            url,
            "the region is not a name such as `eu-central-1`",
        ))
    }
}
