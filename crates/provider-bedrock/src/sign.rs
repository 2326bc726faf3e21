//! Signature version 4, <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html>.

use std::time::{Duration, UNIX_EPOCH};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4::SigningParams;
use backstop_provider::ProviderError;
use backstop_provider_http::{ApiKey, ProviderConfigError, Sign, Unsigned};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};

/// The environment variable that [`AwsCredentials::from_env`] reads the access key id from.
pub const ACCESS_KEY_VARIABLE: &str = "AWS_ACCESS_KEY_ID";

/// The environment variable that [`AwsCredentials::from_env`] reads the secret access key from.
pub const SECRET_KEY_VARIABLE: &str = "AWS_SECRET_ACCESS_KEY";

/// The environment variable that [`AwsCredentials::from_env`] reads the session token from, if it is set.
pub const SESSION_TOKEN_VARIABLE: &str = "AWS_SESSION_TOKEN";

/// The credentials for signing requests. They are never printed.
#[derive(Debug, Clone)]
pub struct AwsCredentials {
    access_key_id: ApiKey,
    secret_access_key: ApiKey,
    session_token: Option<ApiKey>,
}

impl AwsCredentials {
    /// Makes credentials of an access key.
    pub fn new(access_key_id: impl Into<ApiKey>, secret_access_key: impl Into<ApiKey>) -> Self {
        Self {
            access_key_id: access_key_id.into(),
            secret_access_key: secret_access_key.into(),
            session_token: None,
        }
    }

    /// Adds the token of temporary credentials.
    #[must_use]
    pub fn session_token(mut self, token: impl Into<ApiKey>) -> Self {
        self.session_token = Some(token.into());
        self
    }

    /// Reads [`ACCESS_KEY_VARIABLE`], [`SECRET_KEY_VARIABLE`] and, if it is set,
    /// [`SESSION_TOKEN_VARIABLE`].
    ///
    /// # Errors
    ///
    /// As [`ApiKey::from_env`].
    pub fn from_env() -> Result<Self, ProviderConfigError> {
        let credentials = Self::new(
            ApiKey::from_env(ACCESS_KEY_VARIABLE)?,
            ApiKey::from_env(SECRET_KEY_VARIABLE)?,
        );
        match ApiKey::from_env(SESSION_TOKEN_VARIABLE) {
            Ok(token) => Ok(credentials.session_token(token)),
            // Many shells and CI systems set unused variables to nothing.
            Err(ProviderConfigError::MissingKey { .. } | ProviderConfigError::EmptyKey { .. }) => {
                Ok(credentials)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the secrets: the secret access key and the session token.
    pub fn secrets(&self) -> impl Iterator<Item = &ApiKey> {
        std::iter::once(&self.secret_access_key).chain(&self.session_token)
    }

    /// Refuses credentials that no header can carry.
    pub(crate) fn check(&self) -> Result<(), ProviderConfigError> {
        for sent in std::iter::once(&self.access_key_id).chain(&self.session_token) {
            HeaderValue::from_str(sent.reveal()).map_err(|_| ProviderConfigError::InvalidKey)?;
        }
        Ok(())
    }
}

/// A signer of requests to one service in one region.
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
        // Headers that a proxy may add or change are not signed.
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

/// Hides the cause, which may quote the credentials.
fn unsignable<E>(_: E) -> ProviderError {
    ProviderError::AuthFailed("the request cannot be signed".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `post-vanilla` and `post-sts-header-before` of AWS's own test suite for signatures.
    #[test]
    fn known_requests_have_the_known_signatures() {
        #[track_caller]
        fn check(credentials: AwsCredentials, signed: &str, signature: &str) {
            let region = "us-east-1".into();
            let signer = SigV4 { credentials, region, service: "service" };
            let headers = HeaderMap::new();
            let mut request = Unsigned::new("POST", "https://example.amazonaws.com/", &headers);
            request.at = "2015-08-30T12:36:00Z".parse().unwrap();
            let request = signer.sign(&request).unwrap();
            assert_eq!(request["x-amz-date"], "20150830T123600Z");
            let scope = "AKIDEXAMPLE/20150830/us-east-1/service/aws4_request";
            let expected = format!(
                "AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={signed}, Signature={signature}"
            );
            assert_eq!(request["authorization"], expected);
        }
        let key = || AwsCredentials::new("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
        let signature = "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b";
        check(key(), "host;x-amz-date", signature);
        let token = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAe\
                     MicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phU\
                     ZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38x\
                     Vqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2\
                     ICCR/oLxBA==";
        let signature = "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead";
        let signed = "host;x-amz-date;x-amz-security-token";
        check(key().session_token(token), signed, signature);
    }

    /// Spec: E10
    #[test]
    fn credentials_print_nothing() {
        let credentials = AwsCredentials::new("AKID", "secret").session_token("token");
        let shown = format!("{credentials:?}");
        assert!(!["AKID\"", "secret\"", "token\""].iter().any(|it| shown.contains(it)), "{shown}");
    }
}
