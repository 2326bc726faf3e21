use thiserror::Error;

use super::boxed::BoxError;
use crate::code;
use crate::failure::{Effect, Facts, Failure};

/// Says why a state store could not do what it was asked.
///
/// Reading a key that does not exist is no error: [`StateStore::read`](crate::StateStore::read)
/// returns `Ok(None)`.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StateError {
    /// A caller required a key that does not exist.
    ///
    /// Retry: never. Effect: none.
    #[error("no value for `{key}` in `{scope}`")]
    #[non_exhaustive]
    NotFound {
        /// The scope that was searched.
        scope: String,
        /// The key that is missing.
        key: String,
    },
    /// The write failed; the old value, or none, is still there.
    ///
    /// Retry: with backoff. Effect: none.
    #[error("state write failed: {0}")]
    WriteFailed(String),
    /// A value could not be read or written as JSON.
    ///
    /// Retry: never. Effect: none.
    #[error("state value is not serialisable: {0}")]
    Serialization(String),
    /// Anything else.
    ///
    /// Retry: never. Effect: unknown.
    #[error("state store failed in an unclassified way")]
    Other(#[from] BoxError),
}

impl StateError {
    /// Says that `key` is missing in `scope`.
    pub fn not_found(scope: impl Into<String>, key: impl Into<String>) -> Self {
        Self::NotFound { scope: scope.into(), key: key.into() }
    }
}

impl Failure for StateError {
    fn facts(&self) -> Facts {
        match self {
            Self::NotFound { .. } => Facts::never(code::STATE_NOT_FOUND, Effect::None),
            Self::WriteFailed(_) => Facts::backoff(code::STATE_WRITE_FAILED, Effect::None),
            Self::Serialization(_) => Facts::never(code::STATE_SERIALIZATION, Effect::None),
            Self::Other(_) => Facts::never(code::STATE_OTHER, Effect::Unknown),
        }
    }
}

inherent_is_retryable!(StateError);
