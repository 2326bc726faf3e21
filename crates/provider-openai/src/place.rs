//! Where both protocols are asked.

use provider_http::{ApiKey, ConfigError, Credential, Endpoint, EndpointSettings, Timeouts};

use crate::classify::ROWS;

/// Where OpenAI itself answers.
pub const BASE_URL: &str = "https://api.openai.com/v1";

/// The environment variable that [`OpenAi::from_env`](crate::OpenAi::from_env) and
/// [`OpenAiResponses::from_env`](crate::OpenAiResponses::from_env) read the key from.
pub const KEY_VARIABLE: &str = "OPENAI_API_KEY";

/// What a builder knows of the endpoint.
pub(crate) struct Place<'a> {
    pub(crate) provider: &'static str,
    pub(crate) model: &'a str,
    pub(crate) base_url: Option<&'a str>,
    pub(crate) path: &'static str,
    pub(crate) api_key: Option<&'a ApiKey>,
    pub(crate) timeouts: Timeouts,
}

impl Place<'_> {
    /// Opens the endpoint: OpenAI's own, which wants a key, or another, which may.
    pub(crate) fn open(self) -> Result<Endpoint, ConfigError> {
        if self.api_key.is_none() && self.base_url.is_none() {
            return Err(ConfigError::missing_key(KEY_VARIABLE));
        }
        Endpoint::open(&EndpointSettings {
            provider: self.provider,
            model: self.model,
            base_url: self.base_url.unwrap_or(BASE_URL),
            path: self.path,
            credential: self.api_key.map(|key| Credential {
                header: "authorization",
                prefix: "Bearer ",
                key,
            }),
            headers: &[],
            timeouts: self.timeouts,
            rows: ROWS,
        })
    }
}
