use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use layer0::id::{CallId, ErrorId, RunId, SessionId};
use layer0::{Code, Timestamp};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::StoreError;

/// An error to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewError {
    /// When it happened.
    pub at: Timestamp,
    /// The conversation; only it can read the error again through a tool.
    pub session: SessionId,
    /// The run.
    pub run: RunId,
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool: Arc<str>,
    /// Our code.
    pub reason: Code,
    /// The tool author's code.
    pub code: Option<Arc<str>>,
    /// The whole error as JSON text; see [`raw_json`](crate::raw_json).
    pub raw: String,
    /// One line of it.
    pub summary: String,
}

impl NewError {
    /// Returns the same text for the same error: tool, codes and the whole raw text, as the first
    /// 16 hex digits of their SHA-256.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let code = self.code.as_deref().unwrap_or_default();
        fingerprint([&*self.tool, self.reason.as_str(), code, &self.raw])
    }
}

fn fingerprint(parts: [&str; 4]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Where an error was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its id; the earlier one when the same error was stored before in the session.
    pub id: ErrorId,
    /// How often it was seen in the session.
    pub occurrences: u64,
}

/// A stored error. Serialises as the lines of `backstop errors list --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorRecord {
    /// Its id.
    pub id: ErrorId,
    /// The tool.
    pub tool: Arc<str>,
    /// The call it first came from.
    pub call_id: CallId,
    /// Our code.
    pub reason: Code,
    /// The tool author's code.
    pub code: Option<Arc<str>>,
    /// One line of it.
    pub summary: String,
    /// The whole error as JSON text.
    #[serde(serialize_with = "as_json")]
    pub raw: String,
    /// How often it was seen in the session.
    pub occurrences: u64,
    /// The run it first came from.
    pub run: RunId,
    /// The conversation.
    pub session: SessionId,
    /// When it was first seen.
    pub at: Timestamp,
}

impl ErrorRecord {
    /// Returns what [`NewError::fingerprint`] gave when it was stored.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let code = self.code.as_deref().unwrap_or_default();
        fingerprint([&*self.tool, self.reason.as_str(), code, &self.raw])
    }
}

fn as_json<S: Serializer>(raw: &str, serializer: S) -> Result<S::Ok, S::Error> {
    match serde_json::from_str::<&RawValue>(raw) {
        Ok(json) => json.serialize(serializer),
        // Only a row that was changed by hand is no JSON.
        Err(_) => serializer.serialize_str(raw),
    }
}

/// Which errors are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrorFilter {
    /// Only the one with this id.
    pub id: Option<ErrorId>,
    /// Only those of this conversation.
    pub session: Option<SessionId>,
    /// Only those of this run.
    pub run: Option<RunId>,
    /// Only those of this tool.
    pub tool: Option<String>,
    /// Only those first seen at this moment or later.
    pub from: Option<Timestamp>,
    /// Only those first seen before this moment.
    pub to: Option<Timestamp>,
    /// At most this many, newest first.
    pub limit: Option<u32>,
}

/// How long and how much is kept. What is older or more goes, the longest unseen first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// How long an error is kept after it was last seen.
    pub max_age: Option<Duration>,
    /// How many errors are kept.
    pub max_rows: Option<u64>,
    /// How many bytes of raw errors are kept.
    pub max_bytes: Option<u64>,
}

impl Default for Retention {
    /// 30 days and 256 MiB.
    fn default() -> Self {
        Self {
            max_age: Some(Duration::from_secs(30 * 24 * 60 * 60)),
            max_rows: None,
            max_bytes: Some(256 * 1024 * 1024),
        }
    }
}

/// What pruning took away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// How many errors.
    pub rows: u64,
    /// How many bytes of raw errors.
    pub bytes: u64,
}

/// What one tool reported in one conversation under one code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorStats {
    /// The tool.
    pub tool: String,
    /// Our code.
    pub reason: Code,
    /// The tool author's code.
    pub code: Option<String>,
    /// The conversation.
    pub session: SessionId,
    /// How many different errors.
    pub errors: u64,
    /// How often they were seen.
    pub occurrences: u64,
    /// How many characters the summaries spared the model, over all occurrences.
    pub chars_kept: u64,
}

/// Keeps whole errors.
#[async_trait]
pub trait ErrorStore: Send + Sync {
    /// Stores an error. When it returns, the error is as durable as the store was opened to be.
    ///
    /// The same error again in a session is counted, not stored twice.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the error is stored whole or not at all.
    async fn store(&self, error: NewError) -> Result<Stored, StoreError>;

    /// Keeps an error of another store under its own id; one that is there already stays as it is.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    ///
    /// # Cancel safety
    ///
    /// As [`ErrorStore::store`].
    async fn keep(&self, error: ErrorRecord) -> Result<(), StoreError>;

    /// Returns an error of a conversation; `None` when there is none of this id in it.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    async fn get(
        &self,
        session: &SessionId,
        id: &ErrorId,
    ) -> Result<Option<ErrorRecord>, StoreError>;

    /// Lists errors, newest first.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    async fn list(&self, filter: ErrorFilter) -> Result<Vec<ErrorRecord>, StoreError>;

    /// Takes away what `retention` does not keep at this moment.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError>;

    /// Counts errors by tool, codes and conversation, the most characters kept first.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    async fn stats(&self) -> Result<Vec<ErrorStats>, StoreError>;
}
