use thiserror::Error;

use super::boxed::BoxError;
use super::operator::OperatorError;
use crate::code;
use crate::failure::{Effect, Facts, Failure};
use crate::state::Scope;

/// The reason a request to a state store failed.
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
        scope: Box<str>,
        /// The key that is missing.
        key: Box<str>,
    },
    /// Another version is stored than the write expected; nothing was written.
    ///
    /// Retry: never. Effect: none.
    #[error("`{key}` in `{scope}` {}", describe_version(*found))]
    #[non_exhaustive]
    Conflict {
        /// The scope.
        scope: Box<str>,
        /// The key.
        key: Box<str>,
        /// The stored version; `None` if there is no value.
        found: Option<u64>,
    },
    /// A key is empty, too long or has control characters; nothing was written.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid key: {0}")]
    InvalidKey(String),
    /// A value is too large; nothing was written.
    ///
    /// Retry: never. Effect: none.
    #[error("a value has {bytes} bytes, at most {most} are stored")]
    #[non_exhaustive]
    TooLarge {
        /// The size of its JSON, in bytes.
        bytes: usize,
        /// The maximum, in bytes.
        most: usize,
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
    /// Any other error.
    ///
    /// Retry: never. Effect: unknown.
    #[error("state store failed in an unclassified way")]
    Other(#[from] BoxError),
}

impl StateError {
    /// Creates the error for a `key` that is missing in `scope`.
    pub fn not_found(scope: impl Into<Box<str>>, key: impl Into<Box<str>>) -> Self {
        Self::NotFound { scope: scope.into(), key: key.into() }
    }

    /// Creates the error for a `key` whose stored version is not the expected one.
    pub fn conflict(scope: &Scope, key: impl Into<Box<str>>, found: Option<u64>) -> Self {
        Self::Conflict { scope: scope.to_string().into(), key: key.into(), found }
    }

    /// Creates the error for a value that exceeds the store's limit.
    #[must_use]
    pub const fn too_large(bytes: usize, most: usize) -> Self {
        Self::TooLarge { bytes, most }
    }
}

/// Describes the stored version.
fn describe_version(version: Option<u64>) -> String {
    version.map_or_else(|| "has no value".to_owned(), |version| format!("has version {version}"))
}

impl Failure for StateError {
    fn facts(&self) -> Facts {
        match self {
            Self::NotFound { .. } => Facts::never(code::STATE_NOT_FOUND, Effect::None),
            Self::Conflict { .. } => Facts::never(code::STATE_CONFLICT, Effect::None),
            Self::InvalidKey(_) => Facts::never(code::STATE_INVALID_KEY, Effect::None),
            Self::TooLarge { .. } => Facts::never(code::STATE_TOO_LARGE, Effect::None),
            Self::WriteFailed(_) => Facts::backoff(code::STATE_WRITE_FAILED, Effect::None),
            Self::Serialization(_) => Facts::never(code::STATE_SERIALIZATION, Effect::None),
            Self::Other(_) => Facts::never(code::STATE_OTHER, Effect::Unknown),
        }
    }
}

impl From<StateError> for OperatorError {
    fn from(error: StateError) -> Self {
        Self::from_failure(error)
    }
}

inherent_is_retryable!(StateError);
