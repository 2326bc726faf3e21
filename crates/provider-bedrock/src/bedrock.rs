use std::sync::Arc;

use async_trait::async_trait;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use provider::{ModelRequest, ModelResponse, Provider, ProviderError, StreamSink};
use provider_http::{
    Answer, ApiKey, ConfigError, Credential, Endpoint, EndpointSettings, Timeouts,
};
use serde_json::{Map, Value};

use crate::classify::ROWS;
use crate::frames::Frames;
use crate::request::ConverseRequest;
use crate::sign::{ACCESS_KEY_VARIABLE, AwsCredentials, SigV4};
use crate::{response, stream};

/// The environment variable that [`Bedrock::from_env`] reads an API key of Bedrock from.
pub const BEARER_VARIABLE: &str = "AWS_BEARER_TOKEN_BEDROCK";

/// The environment variables that [`Bedrock::from_env`] reads the region from, in this order.
pub const REGION_VARIABLES: [&str; 2] = ["AWS_REGION", "AWS_DEFAULT_REGION"];

/// The name that Bedrock has in signatures.
const SERVICE: &str = "bedrock";

/// What stays as it is in one segment of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const NAME: &str = "bedrock";

/// Sets up a provider.
#[derive(Debug, Clone)]
pub struct Bedrock {
    model: Arc<str>,
    region: Option<String>,
    base_url: Option<String>,
    access: Access,
    timeouts: Timeouts,
    extra_body: Map<String, Value>,
}

/// How requests say whose they are.
#[derive(Debug, Clone)]
enum Access {
    Bearer(ApiKey),
    Signed(AwsCredentials),
    /// A gateway may hold its own.
    Unsaid,
}

impl Bedrock {
    /// Names the model: the id of a model or of an inference profile, or an ARN. Nothing is read from
    /// the environment: credentials meant for AWS must not travel to another base URL unasked.
    pub fn new(model: impl Into<Arc<str>>) -> Self {
        Self {
            model: model.into(),
            region: None,
            base_url: None,
            access: Access::Unsaid,
            timeouts: Timeouts::default(),
            extra_body: Map::new(),
        }
    }

    /// Names the model, and takes the API key from [`BEARER_VARIABLE`] where it is set, otherwise
    /// [`AwsCredentials::from_env`]; and the region from [`REGION_VARIABLES`], where one is set.
    ///
    /// # Errors
    ///
    /// As [`ApiKey::from_env`].
    pub fn from_env(model: impl Into<Arc<str>>) -> Result<Self, ConfigError> {
        let bedrock = Self::new(model).region_from_env();
        match ApiKey::from_env(BEARER_VARIABLE) {
            Ok(key) => Ok(bedrock.api_key(key)),
            Err(ConfigError::MissingKey { .. } | ConfigError::EmptyKey { .. }) => {
                Ok(bedrock.credentials(AwsCredentials::from_env()?))
            }
            Err(error) => Err(error),
        }
    }

    /// Sets the region, such as `eu-central-1`.
    #[must_use]
    pub fn region(mut self, region: impl Into<String>) -> Self {
        self.region = Some(region.into());
        self
    }

    /// Sets the region that the first of [`REGION_VARIABLES`] names which is set, if one is.
    #[must_use]
    pub fn region_from_env(mut self) -> Self {
        let regions = REGION_VARIABLES.iter().filter_map(|name| std::env::var(name).ok());
        let mut regions = regions.map(|region| region.trim().to_owned());
        self.region = regions.find(|region| !region.is_empty()).or(self.region);
        self
    }

    /// Sends to another endpoint than that of the region; `/model/…` is appended. Signatures name
    /// the region all the same.
    #[must_use]
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// Signs requests with these credentials, in place of an API key.
    #[must_use]
    pub fn credentials(mut self, credentials: AwsCredentials) -> Self {
        self.access = Access::Signed(credentials);
        self
    }

    /// Sends an API key of Bedrock, a bearer token, in place of signatures.
    #[must_use]
    pub fn api_key(mut self, key: impl Into<ApiKey>) -> Self {
        self.access = Access::Bearer(key.into());
        self
    }

    /// Sets how long each phase may take.
    #[must_use]
    pub const fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Returns what must never be shown, so that it can be taken out of everything.
    pub fn secrets(&self) -> impl Iterator<Item = &ApiKey> {
        let (bearer, signed) = match &self.access {
            Access::Bearer(key) => (Some(key), None),
            Access::Signed(credentials) => (None, Some(credentials)),
            Access::Unsaid => (None, None),
        };
        bearer.into_iter().chain(signed.into_iter().flat_map(AwsCredentials::secrets))
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
    /// [`ConfigError::MissingKey`] with neither key, credentials nor base URL,
    /// [`ConfigError::MissingSetting`] without a region where one is needed: to sign, and where no
    /// base URL is set; [`ConfigError::InvalidKey`], [`ConfigError::InvalidBaseUrl`],
    /// [`ConfigError::Client`].
    pub fn build(self) -> Result<BedrockProvider, ConfigError> {
        if matches!(self.access, Access::Unsaid) && self.base_url.is_none() {
            return Err(ConfigError::missing_key(ACCESS_KEY_VARIABLE));
        }
        let base_url = match &self.base_url {
            Some(url) => url.clone(),
            None => endpoint_of(self.needed_region()?)?,
        };
        let model = utf8_percent_encode(&self.model, SEGMENT);
        let (whole, streamed) =
            (format!("/model/{model}/converse"), format!("/model/{model}/converse-stream"));
        let settings = EndpointSettings {
            provider: NAME,
            model: &self.model,
            base_url: &base_url,
            path: &whole,
            credential: match &self.access {
                Access::Bearer(key) => {
                    Some(Credential { header: "authorization", prefix: "Bearer ", key })
                }
                Access::Signed(_) | Access::Unsaid => None,
            },
            headers: &[],
            timeouts: self.timeouts,
            rows: ROWS,
        };
        let mut endpoint = Endpoint::open(&settings)?
            .extra_body(self.extra_body.clone())
            .kind_header("x-amzn-errortype");
        if let Access::Signed(credentials) = &self.access {
            credentials.check()?;
            for secret in credentials.secrets() {
                endpoint = endpoint.hiding(secret);
            }
            endpoint = endpoint.signed_by(Arc::new(SigV4 {
                credentials: credentials.clone(),
                region: self.needed_region()?.to_owned(),
                service: SERVICE,
            }));
        }
        let streamed = endpoint.beside(&EndpointSettings { path: &streamed, ..settings })?;
        Ok(BedrockProvider { whole: endpoint, streamed })
    }

    fn needed_region(&self) -> Result<&str, ConfigError> {
        let missing = || ConfigError::missing_setting("region", REGION_VARIABLES[0]);
        self.region.as_deref().ok_or_else(missing)
    }
}

/// Returns the endpoint of a region; refuses what would name another host.
fn endpoint_of(region: &str) -> Result<String, ConfigError> {
    let url = format!("https://bedrock-runtime.{region}.amazonaws.com");
    if region.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') && !region.is_empty() {
        Ok(url)
    } else {
        Err(ConfigError::invalid_base_url(url, "the region is not a name such as `eu-central-1`"))
    }
}

/// Asks Bedrock, or an endpoint that speaks Converse.
#[derive(Debug)]
pub struct BedrockProvider {
    whole: Endpoint,
    streamed: Endpoint,
}

impl BedrockProvider {
    /// Returns how long each phase may take. The layer around applies `attempt`.
    #[must_use]
    pub const fn timeouts(&self) -> Timeouts {
        self.whole.timeouts()
    }

    /// Reads an answer that is here already, such as a recorded one, just as
    /// [`stream`](Provider::stream) reads one from the wire: whole where the content type is JSON or
    /// HTML, as `application/vnd.amazon.eventstream` otherwise. Nothing is sent.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use provider_bedrock::Bedrock;
    ///
    /// let provider = Bedrock::new("model-1").base_url("http://localhost:8080").build()?;
    /// let body = r#"{"output": {"message": {"role": "assistant", "content": [{"text": "42"}]}},
    ///                "stopReason": "end_turn"}"#;
    /// assert_eq!(&*provider.read("application/json", body).await?.text, "42");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ProviderError::StreamTruncated`] when the body ends early,
    /// [`ProviderError::InvalidResponse`] when it is not an answer of this protocol, does not match
    /// its checksums or is too large; whatever a failure in the body is.
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
        self.decode(self.streamed.recorded(content_type, body), None).await
    }

    async fn decode(
        &self,
        mut answer: Answer<'_>,
        sink: Option<&dyn StreamSink>,
    ) -> Result<ModelResponse, ProviderError> {
        if answer.is_event_stream().await? {
            return stream::read(&self.streamed, Frames::new(&self.streamed, answer), sink).await;
        }
        // An endpoint that cannot stream answers in one piece, and so does a failure.
        let response = response::read(&self.streamed, answer, sink).await?;
        provider_http::read_aloud(&response, sink);
        Ok(response)
    }
}

#[async_trait]
impl Provider for BedrockProvider {
    fn name(&self) -> &str {
        NAME
    }

    fn model(&self) -> &str {
        self.whole.model()
    }

    async fn complete(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let body = ConverseRequest::new(&self.whole, request)?;
        let answer = self.whole.post(&body, request.sink.as_deref()).await?;
        self.decode(answer, request.sink.as_deref()).await
    }

    async fn stream(&self, request: &ModelRequest) -> Result<ModelResponse, ProviderError> {
        let body = ConverseRequest::new(&self.whole, request)?;
        let answer = self.streamed.post(&body, request.sink.as_deref()).await?;
        self.decode(answer, request.sink.as_deref()).await
    }
}
