//! The protocol of state that outlives a run: JSON values by scope and key, each with a version.

mod add;
mod scope;
mod value;

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use crate::error::StateError;
use crate::json_text::JsonText;
use crate::time::Timestamp;

pub use add::{Added, StateAdd};
pub use scope::{InvalidScope, Scope};
pub use value::StateValue;

/// Maximum number of attempts in the default implementation of [`StateStore::add`].
const MAX_TRIES: u32 = 1_000;
/// Default number of values in a page.
const PAGE: u32 = 100;

/// A stored value.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Versioned {
    /// The value, with its numbers as they were written.
    pub value: JsonText,
    /// The version of the value. It grows with each write of the key, and is never reused, even after the key was
    /// removed.
    pub version: u64,
    /// The time at which it was written.
    pub written_at: Timestamp,
    /// The time at which it expires; `None` if it does not.
    pub expires_at: Option<Timestamp>,
}

impl Versioned {
    /// Creates a value with this version that does not expire.
    #[must_use]
    pub fn new(value: impl Into<JsonText>, version: u64, written_at: Timestamp) -> Self {
        Self { value: value.into(), version, written_at, expires_at: None }
    }

    /// Sets the time at which it expires.
    #[must_use]
    pub const fn expires_at(mut self, at: Option<Timestamp>) -> Self {
        self.expires_at = at;
        self
    }
}

/// The condition on the stored value for a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Expected {
    /// Any value, or none.
    #[default]
    Any,
    /// No value under the key.
    Absent,
    /// A value of this version.
    Version(u64),
}

impl Expected {
    /// Returns whether the stored version allows the write.
    #[must_use]
    pub fn allows(self, found: Option<u64>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => found.is_none(),
            Self::Version(version) => found == Some(version),
        }
    }
}

/// A write of a value.
///
/// ```
/// use std::time::Duration;
/// use layer0::state::{Expected, Scope, StateWrite};
/// use serde_json::json;
///
/// // Written only if no worker has the lock. It expires, so that a worker that died does not keep it.
/// let lock = StateWrite::new(Scope::Global, "lock", json!("worker-1"))
///     .expecting(Expected::Absent)
///     .expires_after(Duration::from_secs(30));
/// assert_eq!(lock.expected, Expected::Absent);
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StateWrite {
    /// The scope.
    pub scope: Scope,
    /// The key.
    pub key: String,
    /// The value.
    pub value: StateValue,
    /// The condition on the stored value.
    pub expected: Expected,
    /// The time after which the value expires; never if `None`.
    pub expires_after: Option<Duration>,
}

impl StateWrite {
    /// Creates a write without a condition, of a value that does not expire. A number that a `serde_json::Value` cannot
    /// hold is given as text: [`JsonText::parse`]. Stores refuse a value that is nested deeper than 100 levels.
    pub fn new(scope: Scope, key: impl Into<String>, value: impl Into<StateValue>) -> Self {
        let (key, value) = (key.into(), value.into());
        Self { scope, key, value, expected: Expected::Any, expires_after: None }
    }

    /// Writes only if the stored value meets this condition.
    #[must_use]
    pub const fn expecting(mut self, expected: Expected) -> Self {
        self.expected = expected;
        self
    }

    /// Sets the time after which the value expires.
    #[must_use]
    pub const fn expires_after(mut self, time: Duration) -> Self {
        self.expires_after = Some(time);
        self
    }
}

/// A query for values of a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateQuery {
    /// The scope.
    pub scope: Scope,
    /// Only keys with this prefix.
    pub prefix: String,
    /// Only keys after this one, in the order of the list.
    pub after: Option<String>,
    /// From the last key to the first.
    pub backwards: bool,
    /// The last written value first, by version; in this case neither `after` nor `backwards` applies.
    pub newest_first: bool,
    /// The maximum number of values; 100 by default.
    pub limit: u32,
}

impl StateQuery {
    /// Creates a query for the first values of a scope.
    #[must_use]
    pub const fn new(scope: Scope) -> Self {
        Self {
            scope,
            prefix: String::new(),
            after: None,
            backwards: false,
            newest_first: false,
            limit: PAGE,
        }
    }

    /// Selects only keys with this prefix.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Selects only keys after this one, the last of the previous page.
    #[must_use]
    pub fn after(mut self, key: impl Into<String>) -> Self {
        self.after = Some(key.into());
        self
    }

    /// Lists from the last key to the first.
    #[must_use]
    pub const fn backwards(mut self) -> Self {
        self.backwards = true;
        self
    }

    /// Lists the last written value first, independent of the keys.
    #[must_use]
    pub const fn newest_first(mut self) -> Self {
        self.newest_first = true;
        self
    }

    /// Limits the number of values.
    #[must_use]
    pub const fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }
}

/// A value with its key.
pub type StateEntry = (String, Versioned);

impl StateAdd {
    /// Returns the write of the sum; the stored number if it is above the bound.
    ///
    /// # Errors
    ///
    /// [`StateError::Serialization`] if the stored value is not a whole number from 0 on.
    pub fn over(&self, stored: Option<&Versioned>) -> Result<Result<StateWrite, u64>, StateError> {
        let found = stored.map_or(Ok(0), |stored| whole_number(&stored.value))?;
        let Some(sum) = self.after(found) else { return Ok(Err(found)) };
        let expected = stored.map_or(Expected::Absent, |stored| Expected::Version(stored.version));
        let write = StateWrite::new(self.scope.clone(), self.key.clone(), Value::from(sum));
        let expires_after = self.expires_after;
        Ok(Ok(StateWrite { expires_after, ..write.expecting(expected) }))
    }
}

/// Keeps JSON values by scope and key, redacted, each of at most 1 MiB.
#[async_trait]
pub trait StateStore: Send + Sync {
    /// Reads a value; `None` if there is none, or if it has expired.
    ///
    /// # Errors
    ///
    /// [`StateError::Serialization`] if the stored text is not valid JSON, [`StateError::Other`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn read(&self, scope: &Scope, key: &str) -> Result<Option<Versioned>, StateError>;

    /// Writes a value, and returns its version.
    ///
    /// # Errors
    ///
    /// [`StateError::Conflict`] with the stored version if it does not meet the condition: then nothing was written;
    /// [`StateError::TooLarge`], [`StateError::InvalidKey`], [`StateError::Serialization`] for a value that is nested
    /// deeper than 100 levels, [`StateError::WriteFailed`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the value may or may not have been written.
    async fn write(&self, write: StateWrite) -> Result<u64, StateError>;

    /// Adds to a whole number in one atomic step. The number is an ordinary value: it can be read, and each addition
    /// gives it a new version.
    ///
    /// The default implementation reads, compares and writes, and repeats that after a conflict.
    ///
    /// # Errors
    ///
    /// [`StateError::Serialization`] if the stored value is not a whole number, and the errors of
    /// [`StateStore::write`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the amount may or may not have been added.
    async fn add(&self, add: StateAdd) -> Result<Added, StateError> {
        add_by_writes(self, add).await
    }

    /// Removes a value, if the stored one meets the condition; returns whether there was one.
    ///
    /// # Errors
    ///
    /// [`StateError::Conflict`], [`StateError::WriteFailed`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the value may or may not have been removed.
    async fn delete(
        &self,
        scope: &Scope,
        key: &str,
        expected: Expected,
    ) -> Result<bool, StateError>;

    /// Lists values of a scope in the order of their keys, byte by byte, or the newest first.
    ///
    /// # Errors
    ///
    /// [`StateError::Serialization`], [`StateError::Other`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn list(&self, query: StateQuery) -> Result<Vec<StateEntry>, StateError>;

    /// Finds values that contain one of the words of a text, the best matches first, then the newest. Words are
    /// sequences of letters and digits; case is ignored. The scope, prefix and limit of the query apply.
    ///
    /// # Errors
    ///
    /// [`StateError::Serialization`], [`StateError::Other`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn search(&self, query: StateQuery, text: &str) -> Result<Vec<StateEntry>, StateError>;

    /// Lists scopes with a value, in the order of their texts: at most `limit`, starting after `after`.
    ///
    /// # Errors
    ///
    /// [`StateError::Serialization`], [`StateError::Other`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn scopes(&self, after: Option<&Scope>, limit: u32) -> Result<Vec<Scope>, StateError>;

    /// Removes all values of a scope, and returns their number.
    ///
    /// # Errors
    ///
    /// [`StateError::WriteFailed`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the scope may or may not have been cleared.
    async fn clear(&self, scope: &Scope) -> Result<u64, StateError>;
}

/// Reads a number that is written with digits alone, as every store reads it.
fn whole_number(value: &JsonText) -> Result<u64, StateError> {
    let error = |_| StateError::Serialization("the stored value is no whole number".to_owned());
    value.get().parse().map_err(error)
}

/// Adds to the stored number, and repeats that after a conflict.
async fn add_by_writes<S>(store: &S, add: StateAdd) -> Result<Added, StateError>
where
    S: StateStore + ?Sized,
{
    let mut tries_left = MAX_TRIES;
    loop {
        let stored = store.read(&add.scope, &add.key).await?;
        let write = match add.over(stored.as_ref())? {
            Ok(write) => write,
            Err(found) => return Ok(Added::Refused(found)),
        };
        let sum = whole_number(write.value.text()?)?;
        match store.write(write).await {
            Err(StateError::Conflict { .. }) if tries_left > 0 => tries_left -= 1,
            written => return written.map(|_| Added::Done(sum)),
        }
    }
}
