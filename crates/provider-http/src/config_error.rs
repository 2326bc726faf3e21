use layer0::code;
use layer0::error::BoxError;
use layer0::failure::{Effect, Facts, Failure};
use std::borrow::Cow;
use thiserror::Error;

/// An error in setting up a provider. Nothing was sent.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProviderConfigError {
    /// The HTTP client could not be created, usually for lack of root certificates.
    ///
    /// Retry: never. Effect: none.
    #[error("no HTTP client could be made")]
    Client(#[source] BoxError),
    /// The variable for the key is empty.
    ///
    /// Retry: never. Effect: none.
    #[error("no API key: environment variable `{variable}` is empty")]
    #[non_exhaustive]
    EmptyKey {
        /// The name of the variable.
        variable: String,
    },
    /// The base URL cannot receive requests.
    ///
    /// Retry: never. Effect: none.
    #[error("base URL `{url}` is not usable: {reason}")]
    #[non_exhaustive]
    InvalidBaseUrl {
        /// The given URL, with secrets removed.
        url: String,
        /// The problem with the URL.
        reason: String,
    },
    /// A header is invalid.
    ///
    /// Retry: never. Effect: none.
    #[error("header `{name}` cannot be sent: {reason}")]
    #[non_exhaustive]
    InvalidHeader {
        /// The name of the header.
        name: String,
        /// The problem with the header.
        reason: &'static str,
    },
    /// The key contains characters that an HTTP header cannot carry.
    ///
    /// Retry: never. Effect: none.
    #[error("the API key holds characters that a header cannot carry")]
    InvalidKey,
    /// The variable for the key is not set.
    ///
    /// Retry: never. Effect: none.
    #[error("no API key: environment variable `{variable}` is not set")]
    #[non_exhaustive]
    MissingKey {
        /// The name of the variable.
        variable: String,
    },
    /// A setting without a default is missing.
    ///
    /// Retry: never. Effect: none.
    #[error("no {setting}: environment variable `{variable}` is not set")]
    #[non_exhaustive]
    MissingSetting {
        /// The missing setting, such as `region`.
        setting: &'static str,
        /// The variable that usually holds it.
        variable: String,
    },
}

impl Failure for ProviderConfigError {
    fn facts(&self) -> Facts {
        match self {
            Self::Client(_)
            | Self::EmptyKey { .. }
            | Self::InvalidBaseUrl { .. }
            | Self::InvalidHeader { .. }
            | Self::InvalidKey
            | Self::MissingKey { .. }
            | Self::MissingSetting { .. } => Facts::never(code::CONFIG_INVALID, Effect::None),
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(Self::hint(self).into())
    }
}

impl ProviderConfigError {
    /// Makes [`ProviderConfigError::InvalidBaseUrl`] for a URL that holds no secret.
    pub fn invalid_base_url(url: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::InvalidBaseUrl { url: url.into(), reason: reason.into() }
    }

    pub(crate) fn invalid_header(name: &str, reason: &'static str) -> Self {
        Self::InvalidHeader { name: name.escape_default().to_string(), reason }
    }

    /// Makes [`ProviderConfigError::MissingKey`].
    pub fn missing_key(variable: impl Into<String>) -> Self {
        Self::MissingKey { variable: variable.into() }
    }

    /// Makes [`ProviderConfigError::MissingSetting`].
    pub fn missing_setting(setting: &'static str, variable: impl Into<String>) -> Self {
        Self::MissingSetting { setting, variable: variable.into() }
    }

    /// Returns advice on fixing it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Client(_) => "install the system's root certificates (ca-certificates)".into(),
            Self::EmptyKey { variable } | Self::MissingKey { variable } => format!(
                "get a key from the provider and run `export {variable}=…`; a local endpoint that \
                 needs none is used by setting its base URL"
            ),
            Self::InvalidBaseUrl { .. } => {
                "give scheme, host and path prefix, such as `http://localhost:8080/v1`".into()
            }
            Self::InvalidHeader { .. } => "correct it, or take it out".into(),
            Self::MissingSetting { variable, .. } => format!("run `export {variable}=…`"),
            Self::InvalidKey => "copy the key again, without line breaks or quotes".into(),
        }
    }
}
