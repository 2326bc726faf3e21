use std::borrow::Cow;

use thiserror::Error;

use super::boxed::BoxError;
use super::operator::OperatorError;
use crate::code;
use crate::failure::{Chain, Effect, Facts, Failure};

/// The reason an environment could not run something inside its limits.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EnvError {
    /// The environment could not be set up as requested.
    ///
    /// Retry: never. Effect: none.
    #[error("environment could not be provisioned: {0}")]
    ProvisionFailed(String),
    /// Something crossed the environment's limits.
    ///
    /// Retry: never. Effect: unknown.
    #[error("isolation violated: {0}")]
    IsolationViolation(String),
    /// The network rules of the environment do not let something through. A program that was denied a host may have
    /// done other things before.
    ///
    /// Retry: never. Effect: unknown.
    #[error("network denied: {0}")]
    NetworkDenied(String),
    /// A credential could not be provided.
    ///
    /// Retry: never. Effect: none.
    #[error("credential could not be provided: {0}")]
    CredentialFailed(String),
    /// A resource limit was reached.
    ///
    /// Retry: never. Effect: unknown.
    #[error("resource limit reached: {0}")]
    ResourceExceeded(String),
    /// The operator inside ran and failed.
    ///
    /// Retry: as the operator's error says. Effect: as the operator's error says.
    #[error("operator failed")]
    OperatorError(#[from] OperatorError),
    /// Any other error.
    ///
    /// Retry: never. Effect: unknown.
    #[error("environment failed in an unclassified way")]
    Other(#[from] BoxError),
}

impl EnvError {
    /// Returns the description of the failure without its class, which the code has already.
    ///
    /// ```
    /// use layer0::error::EnvError;
    ///
    /// let error = EnvError::NetworkDenied("host example.org is not among api.example.com".into());
    /// assert_eq!(error.what(), "host example.org is not among api.example.com");
    /// ```
    #[must_use]
    pub fn what(&self) -> Cow<'_, str> {
        match self {
            Self::ProvisionFailed(what)
            | Self::IsolationViolation(what)
            | Self::NetworkDenied(what)
            | Self::CredentialFailed(what)
            | Self::ResourceExceeded(what) => what.into(),
            Self::OperatorError(error) => Chain(error).to_string().into(),
            Self::Other(error) => Chain(&**error).to_string().into(),
        }
    }
}

impl Failure for EnvError {
    fn facts(&self) -> Facts {
        match self {
            Self::ProvisionFailed(_) => Facts::never(code::ENV_PROVISION_FAILED, Effect::None),
            Self::IsolationViolation(_) => {
                Facts::never(code::ENV_ISOLATION_VIOLATION, Effect::Unknown)
            }
            Self::NetworkDenied(_) => Facts::never(code::ENV_NETWORK_DENIED, Effect::Unknown),
            Self::CredentialFailed(_) => Facts::never(code::ENV_CREDENTIAL_FAILED, Effect::None),
            Self::ResourceExceeded(_) => Facts::never(code::ENV_RESOURCE_EXCEEDED, Effect::Unknown),
            Self::OperatorError(error) => error.facts(),
            Self::Other(_) => Facts::never(code::ENV_OTHER, Effect::Unknown),
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::OperatorError(error) => error.hint(),
            Self::ProvisionFailed(_)
            | Self::IsolationViolation(_)
            | Self::NetworkDenied(_)
            | Self::CredentialFailed(_)
            | Self::ResourceExceeded(_)
            | Self::Other(_) => None,
        }
    }
}

impl From<EnvError> for OperatorError {
    fn from(error: EnvError) -> Self {
        Self::from_failure(error)
    }
}

inherent_is_retryable!(EnvError);
