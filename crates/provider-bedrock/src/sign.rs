//! Signature version 4, <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html>.

use std::time::{Duration, UNIX_EPOCH};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4::SigningParams;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};
use provider::ProviderError;
use provider_http::{ApiKey, ConfigError, Sign, Unsigned};

/// The environment variable that [`AwsCredentials::from_env`] reads the access key id from.
pub const ACCESS_KEY_VARIABLE: &str = "AWS_ACCESS_KEY_ID";

/// The environment variable that [`AwsCredentials::from_env`] reads the secret access key from.
pub const SECRET_KEY_VARIABLE: &str = "AWS_SECRET_ACCESS_KEY";

/// The environment variable that [`AwsCredentials::from_env`] reads the session token from, where it
/// is set.
pub const SESSION_TOKEN_VARIABLE: &str = "AWS_SESSION_TOKEN";

/// What requests are signed with. None of it is printed.
#[derive(Debug, Clone)]
pub struct AwsCredentials {
    access_key_id: ApiKey,
    secret_access_key: ApiKey,
    session_token: Option<ApiKey>,
}

impl AwsCredentials {
    /// Holds an access key.
    pub fn new(access_key_id: impl Into<ApiKey>, secret_access_key: impl Into<ApiKey>) -> Self {
        Self {
            access_key_id: access_key_id.into(),
            secret_access_key: secret_access_key.into(),
            session_token: None,
        }
    }

    /// Adds the token that temporary credentials come with.
    #[must_use]
    pub fn session_token(mut self, token: impl Into<ApiKey>) -> Self {
        self.session_token = Some(token.into());
        self
    }

    /// Takes [`ACCESS_KEY_VARIABLE`], [`SECRET_KEY_VARIABLE`] and, where it is set,
    /// [`SESSION_TOKEN_VARIABLE`].
    ///
    /// # Errors
    ///
    /// As [`ApiKey::from_env`].
    pub fn from_env() -> Result<Self, ConfigError> {
        let credentials = Self::new(
            ApiKey::from_env(ACCESS_KEY_VARIABLE)?,
            ApiKey::from_env(SECRET_KEY_VARIABLE)?,
        );
        match ApiKey::from_env(SESSION_TOKEN_VARIABLE) {
            Ok(token) => Ok(credentials.session_token(token)),
            // Many shells and CI systems set to nothing what is not to be used.
            Err(ConfigError::MissingKey { .. } | ConfigError::EmptyKey { .. }) => Ok(credentials),
            Err(error) => Err(error),
        }
    }

    /// Returns what must never be shown: the secret access key and the session token.
    pub fn secrets(&self) -> impl Iterator<Item = &ApiKey> {
        std::iter::once(&self.secret_access_key).chain(&self.session_token)
    }

    /// Refuses what no header can carry.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        for sent in std::iter::once(&self.access_key_id).chain(&self.session_token) {
            HeaderValue::from_str(sent.reveal()).map_err(|_| ConfigError::InvalidKey)?;
        }
        Ok(())
    }
}

/// Signs requests to one service in one region.
pub(crate) struct SigV4 {
    pub(crate) credentials: AwsCredentials,
    pub(crate) region: String,
    pub(crate) service: &'static str,
}

impl Sign for SigV4 {
    fn sign(&self, request: &Unsigned<'_>) -> Result<HeaderMap, ProviderError> {
        let AwsCredentials { access_key_id, secret_access_key, session_token } = &self.credentials;
        let identity = Credentials::new(
            access_key_id.reveal(),
            secret_access_key.reveal(),
            session_token.as_ref().map(|token| token.reveal().to_owned()),
            None,
            "backstop",
        )
        .into();
        let since_1970 = u64::try_from(request.at.as_millis()).unwrap_or_default();
        let params = SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(self.service)
            .time(UNIX_EPOCH + Duration::from_millis(since_1970))
            .settings(SigningSettings::default())
            .build()
            .map_err(unsignable)?
            .into();
        // What a proxy may add or change is left out.
        let content_type = request.headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
        let headers = content_type.map(|value| (CONTENT_TYPE.as_str(), value));
        let body = SignableBody::Bytes(request.body);
        let signable = SignableRequest::new(request.method, request.url, headers.into_iter(), body)
            .map_err(unsignable)?;
        let (instructions, _) = sign(signable, &params).map_err(unsignable)?.into_parts();
        instructions
            .headers()
            .map(|(name, value)| {
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(unsignable)?;
                Ok((name, HeaderValue::from_str(value).map_err(unsignable)?))
            })
            .collect()
    }
}

/// Nothing of the cause is shown: it may quote what was to be signed with.
fn unsignable<E>(_: E) -> ProviderError {
    ProviderError::AuthFailed("the request cannot be signed".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer(credentials: AwsCredentials) -> SigV4 {
        SigV4 { credentials, region: "us-east-1".into(), service: "service" }
    }

    fn example() -> AwsCredentials {
        AwsCredentials::new("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    }
}
