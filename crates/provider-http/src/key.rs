use std::env::{self, VarError};
use std::fmt;
use std::sync::Arc;

use crate::ProviderConfigError;

/// A secret that is sent and never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(Arc<str>);

impl ApiKey {
    /// Wraps a key.
    pub fn new(key: impl Into<Arc<str>>) -> Self {
        Self(key.into())
    }

    /// Reads a key from an environment variable, without surrounding white space.
    ///
    /// # Errors
    ///
    /// [`ProviderConfigError::MissingKey`] when the variable is not set, [`ProviderConfigError::EmptyKey`] when it
    /// holds nothing, [`ProviderConfigError::InvalidKey`] when it is not text.
    pub fn from_env(variable: &str) -> Result<Self, ProviderConfigError> {
        match env::var(variable) {
            Ok(key) if key.trim().is_empty() => {
                Err(ProviderConfigError::EmptyKey { variable: variable.into() })
            }
            Ok(key) => Ok(Self::new(key.trim())),
            Err(VarError::NotPresent) => {
                Err(ProviderConfigError::MissingKey { variable: variable.into() })
            }
            Err(VarError::NotUnicode(_)) => Err(ProviderConfigError::InvalidKey),
        }
    }

    /// Returns the key itself, to send it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ApiKey {
    fn from(key: &str) -> Self {
        Self::new(key)
    }
}

impl From<String> for ApiKey {
    fn from(key: String) -> Self {
        Self::new(key)
    }
}

/// Prints nothing of the key, not even its length.
impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_variable_is_named_with_a_hint() {
        let error = ApiKey::from_env("BACKSTOP_TEST_NO_SUCH_KEY").unwrap_err();
        assert_eq!(
            error.to_string(),
            "no API key: environment variable `BACKSTOP_TEST_NO_SUCH_KEY` is not set"
        );
        assert!(error.hint().contains("export BACKSTOP_TEST_NO_SUCH_KEY="));
    }

    /// Spec: E10
    #[test]
    fn a_key_prints_nothing() {
        assert_eq!(format!("{:?}", ApiKey::new("sk-secret")), "ApiKey");
    }
}
