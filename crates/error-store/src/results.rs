//! Large results: a preview for the model, the whole on request.

use std::sync::Arc;

use async_trait::async_trait;
use backstop_redact::Redactor;
use layer0::Timestamp;
use layer0::id::{ResultId, SessionId};

use crate::id::random_hex;
use crate::{Hold, Lookup, Origin, Pruned, ResultFilter, Retention, StoreError};

/// The most characters of a large result that the model reads at once.
pub const PREVIEW_CHARS: usize = 2_000;

/// A result to store, without the secrets that the process holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewResult {
    origin: Origin,
    body: Arc<str>,
}

impl NewResult {
    /// Takes the whole text of a result and redacts the secrets of the process in it.
    #[must_use]
    pub fn new(origin: Origin, body: &str, redactor: &Redactor) -> Self {
        Self { origin, body: redactor.redact_held(body).into() }
    }

    /// Returns the call it comes from.
    #[must_use]
    pub const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns the whole text.
    #[must_use]
    pub const fn body(&self) -> &Arc<str> {
        &self.body
    }

    /// Makes the record of a result that was stored.
    #[must_use]
    pub fn into_record(self, id: ResultId) -> ResultRecord {
        ResultRecord { id, origin: self.origin, body: self.body }
    }
}

/// A stored result.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResultRecord {
    /// Its id.
    pub id: ResultId,
    /// The call it comes from.
    pub origin: Origin,
    /// The whole text.
    pub body: Arc<str>,
}

impl ResultRecord {
    /// Makes a record of what a store reads back.
    pub fn new(id: impl Into<ResultId>, origin: Origin, body: impl Into<Arc<str>>) -> Self {
        Self { id: id.into(), origin, body: body.into() }
    }
}

/// A stored result in a list, without its text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResultEntry {
    /// Its id.
    pub id: ResultId,
    /// The call it comes from.
    pub origin: Origin,
    /// The length of its text, in bytes.
    pub bytes: u64,
}

impl ResultEntry {
    /// Makes an entry.
    pub fn new(id: impl Into<ResultId>, origin: Origin, bytes: u64) -> Self {
        Self { id: id.into(), origin, bytes }
    }
}

/// Keeps large results. `testkit::contract::result_store` holds a store of your own against this
/// contract.
#[async_trait]
pub trait ResultStore: Send + Sync {
    /// Stores a result. When it returns, the result is as durable as the store was opened to be.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the result is stored whole or not at all.
    async fn put(&self, result: NewResult) -> Result<ResultId, StoreError>;

    /// Keeps a result of another store under its own id; one that is there already stays as it is.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    ///
    /// # Cancel safety
    ///
    /// As [`ResultStore::put`].
    async fn keep(&self, result: ResultRecord) -> Result<(), StoreError>;

    /// Keeps that there was a result of this id in another store, where it was taken away.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    ///
    /// # Cancel safety
    ///
    /// As [`ResultStore::put`].
    async fn keep_expired(&self, session: &SessionId, id: &ResultId) -> Result<(), StoreError>;

    /// Returns a result of a session.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    async fn get(
        &self,
        session: &SessionId,
        id: &ResultId,
    ) -> Result<Lookup<ResultRecord>, StoreError>;

    /// Returns a result of any session, for people; a model reads with [`ResultStore::get`].
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    async fn find(&self, id: &ResultId) -> Result<Lookup<ResultRecord>, StoreError>;

    /// Lists results, newest first; of one moment, the last stored first.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    async fn list(&self, filter: ResultFilter) -> Result<Vec<ResultEntry>, StoreError>;

    /// Takes away what `retention` does not keep at this moment. The ids answer
    /// [`Lookup::Expired`] from then on.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError>;

    /// Keeps the results of a session from being pruned while a run is open in it. A store that knows the open runs
    /// from its log needs to do nothing.
    fn hold(&self, session: &SessionId) -> Hold {
        let _ = session;
        Hold::none()
    }
}

/// Makes an id for a result of this moment: `res_YYYYMMDD_HHMMSS_` and 6 hex digits, 26 characters.
///
/// # Errors
///
/// [`StoreError::Failed`], when the operating system has no randomness.
pub fn result_id(at: Timestamp) -> Result<ResultId, StoreError> {
    Ok(ResultId::new(format!("res_{}_{}", at.compact(), random_hex()?)))
}

/// Returns what the model reads of a large result that was stored: at most [`PREVIEW_CHARS`] characters, and at most
/// `max_bytes` bytes of its text.
#[must_use]
pub fn preview_text(body: &str, id: &ResultId, max_bytes: usize) -> String {
    let end = body.char_indices().nth(PREVIEW_CHARS).map_or(body.len(), |(at, _)| at);
    let end = end.min(body.floor_char_boundary(max_bytes));
    format!(
        "{}\n[Result ID: {id}] {} bytes in all, {end} shown.\n\
         Use get_tool_result(result_id=\"{id}\", offset={end}) to read on.",
        &body[..end],
        body.len(),
    )
}

/// Returns what the model reads of a large result that could not be stored: as much as is allowed,
/// and that it was cut.
#[must_use]
pub fn truncated_text(body: &str, max_bytes: usize) -> String {
    let end = body.floor_char_boundary(max_bytes);
    format!("{}\n[Cut: {end} of {} bytes shown; the rest was not kept]", &body[..end], body.len())
}
