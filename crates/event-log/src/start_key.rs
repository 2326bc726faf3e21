//! Keys by which a start that is asked for again is known.

use std::collections::BTreeMap;

use async_trait::async_trait;
use layer0::id::{RunId, SessionId};
use layer0::operator::Task;
use layer0::{JsonText, Timestamp};
use thiserror::Error;

use crate::{LogError, text_digest};

/// How long a key is kept at least, in milliseconds.
const KEPT: i64 = 24 * 60 * 60 * 1_000;

/// The beginning of a key that is kept by its digest.
const DIGEST: &str = "sha256:";

/// The key of a start, and what it starts. It is its operator's own.
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
    /// The operator that is started.
    pub operator: String,
    /// The key.
    pub key: String,
    /// The digest of what is asked: the task, its session where one was named, and its labels.
    pub input: String,
}

impl StartKey {
    /// The most bytes of a key.
    pub const MAX_BYTES: usize = 256;

    /// Names what is started. Whichever way the start is asked for, the same task, session and labels are the
    /// same input.
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
        let input = JsonText::of(&(task, session, labels)).map_err(InvalidStartKey::Task)?;
        Ok(Self { operator: operator.into(), key, input: text_digest(input.get()) })
    }

    /// Returns the digest of the key, by which stores keep it: a key may say what is asked.
    #[must_use]
    pub fn digest(&self) -> String {
        format!("{DIGEST}{}", text_digest(&self.key))
    }

    /// Returns the digest of a key that a store keeps, as an older version kept it or by its digest.
    #[must_use]
    pub fn kept_digest(kept: &str) -> String {
        match kept.starts_with(DIGEST) {
            true => kept.to_owned(),
            false => format!("{DIGEST}{}", text_digest(kept)),
        }
    }

    /// Returns the key as older versions kept it.
    #[must_use]
    pub fn plain(&self) -> &str {
        &self.key
    }

    /// Returns since when keys are kept whose run is not there: for 24 hours.
    #[must_use]
    pub fn kept_since(now: Timestamp) -> Timestamp {
        Timestamp::from_millis(now.as_millis().saturating_sub(KEPT))
    }
}

/// Says why a start cannot be known by a key.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InvalidStartKey {
    /// The key is empty, or longer than [`StartKey::MAX_BYTES`].
    #[error("a key has 1 to {} bytes", StartKey::MAX_BYTES)]
    Length,
    /// The task cannot be recorded: it is nested too deep.
    #[error("the task cannot be recorded")]
    Task(#[source] serde_json::Error),
}

/// What a key stands for, once it was offered a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bound {
    /// The run that was offered: the key is new.
    New,
    /// The run that a start with the same key and input was given.
    Earlier(RunId),
    /// Such a run, which waits in the store's queue for a worker to start it.
    Queued(RunId),
    /// Such a run, which was removed with its record, and does not begin again.
    Removed(RunId),
    /// Another input.
    Reused,
}

/// Keeps the keys of starts, beside the runs that they stand for: one table, whichever way a start is asked for.
#[async_trait]
pub trait StartKeys: Send + Sync {
    /// Binds a key to an input and a run, unless it is bound already. It is kept as long as the run, and at least
    /// [for a day](StartKey::kept_since).
    ///
    /// # Errors
    ///
    /// [`LogError::Unreachable`], [`LogError::Locked`], [`LogError::Full`], [`LogError::Closed`],
    /// [`LogError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the key is bound or not; asking again says which.
    async fn bind(&self, key: &StartKey, run: &RunId, now: Timestamp) -> Result<Bound, LogError>;
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
