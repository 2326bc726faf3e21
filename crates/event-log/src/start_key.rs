//! Keys that identify a repeated start.

use std::collections::BTreeMap;
use std::fmt;

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

/// Separator of the digest of an input and the digests of its parts, and the length of each of these.
const PART: char = ' ';
const PART_DIGITS: usize = 8;

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
/// assert_eq!(key.difference_from(&key.input), None);
/// # Ok::<(), backstop_event_log::InvalidStartKey>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StartKey {
    /// The operator to start.
    pub operator: String,
    /// The key.
    pub key: String,
    /// Digest of the input: the task, its session if one was named, and its labels. Shorter digests of the three follow,
    /// which tell [what differs](StartKey::difference_from).
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
        let json = |part: Result<JsonText, _>| part.map_err(InvalidStartKey::Task);
        let mut input = text_digest(json(JsonText::from_value(&(task, session, labels)))?.get());
        for part in [
            json(JsonText::from_value(task))?,
            json(JsonText::from_value(&session))?,
            json(JsonText::from_value(labels))?,
        ] {
            // With the key in it, nobody finds the session or the labels of an unknown start by trying.
            let digest = text_digest(&format!("{key} {}", part.get()));
            input.push(PART);
            input.push_str(&digest[..PART_DIGITS]);
        }
        Ok(Self { operator: operator.into(), key, input })
    }

    /// Compares the input of this start with that of an earlier one, as it is stored. `None` if they are the same.
    #[must_use]
    pub fn difference_from(&self, stored: &str) -> Option<StartDifference> {
        let (mut own, mut earlier) = (self.input.split(PART), stored.split(PART));
        if own.next() == earlier.next() {
            return None;
        }
        // Older versions stored no digests of the parts.
        let mut differs = || own.next().zip(earlier.next()).is_some_and(|(own, it)| own != it);
        Some(StartDifference { task: differs(), session: differs(), labels: differs() })
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

/// The parts in which a start differs from an earlier one with the same key.
///
/// All are `false` if that is unknown, because an older version stored the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct StartDifference {
    /// Whether it has another task.
    pub task: bool,
    /// Whether it names another session, or only one of the two names a session.
    pub session: bool,
    /// Whether it has other labels.
    pub labels: bool,
}

impl fmt::Display for StartDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.task, "another input"),
            (self.session, "another session"),
            (self.labels, "other labels"),
        ];
        let parts: Vec<&str> = parts.iter().filter(|part| part.0).map(|part| part.1).collect();
        match &parts[..] {
            [] => f.write_str("another input, session or labels"),
            [rest @ .., last] if !rest.is_empty() => write!(f, "{} and {last}", rest.join(", ")),
            _ => f.write_str(&parts.concat()),
        }
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
    /// The key was used with another input, which differs in these parts.
    Reused(StartDifference),
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

    /// Spec: J2w
    #[test]
    fn reused_key_says_what_differs() {
        let labels = |value: &str| BTreeMap::from([("tenant".to_owned(), value.to_owned())]);
        let start = |text: &str, session: Option<&str>, tenant: &str| {
            let session = session.map(SessionId::from);
            let task = Task::text(text);
            StartKey::new("a", "k", &task, session.as_ref(), &labels(tenant)).unwrap()
        };
        let earlier = start("x", None, "acme");
        assert_eq!(start("x", None, "acme").difference_from(&earlier.input), None);
        for (other, differs) in [
            (start("y", None, "acme"), "another input"),
            (start("x", Some("s"), "acme"), "another session"),
            (start("x", None, "other"), "other labels"),
            (start("x", Some("s"), "other"), "another session and other labels"),
            (start("y", Some("s"), "other"), "another input, another session and other labels"),
        ] {
            let found = other.difference_from(&earlier.input).unwrap();
            assert_eq!(found.to_string(), differs);
        }
        // An older version stored one digest.
        let old = &earlier.input[..64];
        assert_eq!(earlier.difference_from(old), None);
        let unknown = start("y", None, "acme").difference_from(old).unwrap();
        assert_eq!(unknown.to_string(), "another input, session or labels");
    }
}
