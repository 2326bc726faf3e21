//! Keys that identify a repeated start.

use std::collections::BTreeMap;

use async_trait::async_trait;
use layer0::id::{RunId, SessionId};
use layer0::operator::Task;
use layer0::{JsonText, Timestamp};
use thiserror::Error;

use crate::{LogError, text_digest};
use layer0::code;
use layer0::failure::{Effect, Facts, Failure};

/// Minimum time for which a key is kept, in milliseconds.
const KEPT: i64 = 24 * 60 * 60 * 1_000;

/// Prefix of a key that is stored as its digest.
const DIGEST: &str = "sha256:";

/// The key of a start, with the digest of its input. Keys of different operators are independent.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use backstop_event_log::StartKey;
/// use layer0::operator::Task;
///
/// let task = Task::text("Where is order 7?");
/// let key = StartKey::new("support", "mail-7", &task, None, &BTreeMap::new())?;
/// assert_eq!(key.input.len(), 64);
/// # Ok::<(), backstop_event_log::InvalidStartKey>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StartKey {
    /// The operator to start.
    pub operator: String,
    /// The key.
    pub key: String,
    /// Digest of the input: the task, its session if one was named, and its labels.
    pub input: String,
}

impl StartKey {
    /// Maximum length of a key, in bytes.
    pub const MAX_BYTES: usize = 256;

    /// Creates the key of a start.
    ///
    /// The same task, session and labels have the same digest, whichever way the start is requested.
    ///
    /// # Errors
    ///
    /// Any variant of [`InvalidStartKey`].
    pub fn new(
        operator: impl Into<String>,
        key: impl Into<String>,
        task: &Task,
        session: Option<&SessionId>,
        labels: &BTreeMap<String, String>,
    ) -> Result<Self, InvalidStartKey> {
        let key = key.into();
        if !(1..=Self::MAX_BYTES).contains(&key.len()) {
            return Err(InvalidStartKey::Length);
        }
        let input =
            JsonText::from_value(&(task, session, labels)).map_err(InvalidStartKey::Task)?;
        Ok(Self { operator: operator.into(), key, input: text_digest(input.get()) })
    }

    /// Returns the digest of the key. Stores keep only the digest, because a key may contain private text.
    #[must_use]
    pub fn digest(&self) -> String {
        format!("{DIGEST}{}", text_digest(&self.key))
    }

    /// Returns the digest of a key in a store, where older versions stored the key itself.
    #[must_use]
    pub fn kept_digest(kept: &str) -> String {
        match kept.starts_with(DIGEST) {
            true => kept.to_owned(),
            false => format!("{DIGEST}{}", text_digest(kept)),
        }
    }

    /// Returns the key as older versions stored it.
    #[must_use]
    pub fn plain(&self) -> &str {
        &self.key
    }

    /// Returns the time before which keys without a run have expired: 24 hours ago.
    #[must_use]
    pub fn kept_since(now: Timestamp) -> Timestamp {
        Timestamp::from_millis(now.as_millis().saturating_sub(KEPT))
    }
}

/// Error of an invalid start key.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InvalidStartKey {
    /// The key is empty, or longer than [`StartKey::MAX_BYTES`].
    ///
    /// Retry: never. Effect: none.
    #[error("a key has 1 to {} bytes", StartKey::MAX_BYTES)]
    Length,
    /// The task cannot be recorded: it is nested too deep.
    ///
    /// Retry: never. Effect: none.
    #[error("the task cannot be recorded")]
    Task(#[source] serde_json::Error),
}

impl Failure for InvalidStartKey {
    fn facts(&self) -> Facts {
        match self {
            Self::Length | Self::Task(_) => Facts::never(code::INPUT_INVALID, Effect::None),
        }
    }
}

/// The result of binding a key to a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyBinding {
    /// The key is new, and bound to the given run.
    New,
    /// The run of an earlier start with the same key and input.
    Earlier(RunId),
    /// Such a run, which is in the store's queue until a worker starts it.
    Queued(RunId),
    /// Such a run, whose record was removed; it is not started again.
    Removed(RunId),
    /// The key was used with another input.
    Reused,
}

/// A store of start keys, next to the runs: one table for every way of requesting a start.
#[async_trait]
pub trait StartKeys: Send + Sync {
    /// Binds a key to an input and a run, unless it is already bound. The key is kept as long as the run, and at least
    /// [for a day](StartKey::kept_since).
    ///
    /// # Errors
    ///
    /// [`LogError::Unreachable`], [`LogError::Locked`], [`LogError::Full`], [`LogError::Closed`],
    /// [`LogError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the key may or may not be bound; another call returns which.
    async fn bind(
        &self,
        key: &StartKey,
        run: &RunId,
        now: Timestamp,
    ) -> Result<KeyBinding, LogError>;
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Spec: J2w
    #[test]
    fn bad_key_is_told_from_a_deep_task() {
        let new = |key: &str, task: &Task| StartKey::new("a", key, task, None, &BTreeMap::new());
        let long = "k".repeat(StartKey::MAX_BYTES + 1);
        for key in ["", &*long] {
            let refused = new(key, &Task::text("x"));
            assert!(matches!(refused, Err(InvalidStartKey::Length)), "{refused:?}");
        }
        assert!(new(&long[1..], &Task::text("x")).is_ok());
        let deep = (0..200).fold(Value::Null, |inner, _| json!([inner]));
        let refused = new("k", &Task::json(deep));
        assert!(matches!(refused, Err(InvalidStartKey::Task(_))), "{refused:?}");
    }
}
