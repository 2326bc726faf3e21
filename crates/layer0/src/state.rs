//! The protocol of state that outlives a run.

use async_trait::async_trait;
use serde_json::Value;

use crate::error::StateError;

/// A value with the version that a conditional write compares.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Versioned {
    /// The value.
    pub value: Value,
    /// Counts the writes to this key, from 1.
    pub version: u64,
}

impl Versioned {
    /// Makes a value that was written so often.
    #[must_use]
    pub const fn new(value: Value, version: u64) -> Self {
        Self { value, version }
    }
}

/// Keeps JSON values by scope and key.
#[async_trait]
pub trait StateStore: Send + Sync {
    /// Reads a value; a missing key is `Ok(None)`.
    ///
    /// # Errors
    ///
    /// [`StateError::Serialization`], [`StateError::Other`].
    async fn read(&self, scope: &str, key: &str) -> Result<Option<Versioned>, StateError>;

    /// Writes a value and returns its version. With `expected`, writes only if the stored version
    /// is that one (0: the key does not exist).
    ///
    /// # Errors
    ///
    /// [`StateError::WriteFailed`] (also when the version differs), [`StateError::Serialization`].
    async fn write(
        &self,
        scope: &str,
        key: &str,
        value: Value,
        expected: Option<u64>,
    ) -> Result<u64, StateError>;

    /// Removes a value; says whether there was one.
    ///
    /// # Errors
    ///
    /// [`StateError::WriteFailed`].
    async fn delete(&self, scope: &str, key: &str) -> Result<bool, StateError>;

    /// Lists the keys of a scope that begin with `prefix`, in order.
    ///
    /// # Errors
    ///
    /// [`StateError::Other`].
    async fn list(&self, scope: &str, prefix: &str) -> Result<Vec<String>, StateError>;

    /// Lists the keys of a scope whose value contains `text`, in order.
    ///
    /// # Errors
    ///
    /// [`StateError::Other`].
    async fn search(&self, scope: &str, text: &str) -> Result<Vec<String>, StateError>;
}
