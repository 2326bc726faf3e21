//! Large results: a preview for the model, and the whole text on request.

use std::sync::Arc;

use async_trait::async_trait;
use backstop_redact::Redactor;
use layer0::Timestamp;
use layer0::id::{ResultId, SessionId};

use crate::id::random_hex;
use crate::{Hold, Lookup, Origin, Pruned, ResultFilter, Retention, StoreError};

/// Maximum characters of a large result in its preview.
pub const PREVIEW_CHARS: usize = 2_000;

/// A result to store, without secrets of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewResult {
    origin: Origin,
    body: Arc<str>,
}

impl NewResult {
    /// Creates a result from its whole text, and redacts the secrets of the process.
    #[must_use]
    pub fn new(origin: Origin, body: &str, redactor: &Redactor) -> Self {
        Self { origin, body: redactor.redact_held(body).into() }
    }

    /// Returns the tool call of the result.
    #[must_use]
    pub const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns the whole text.
    #[must_use]
    pub const fn body(&self) -> &Arc<str> {
        &self.body
    }

    /// Creates the record of a stored result.
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
    /// The tool call of the result.
    pub origin: Origin,
    /// The whole text.
    pub body: Arc<str>,
}

impl ResultRecord {
    /// Creates a record from a store's row.
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
    /// The tool call of the result.
    pub origin: Origin,
    /// Length of its text, in bytes.
    pub bytes: u64,
}

impl ResultEntry {
    /// Creates an entry.
    pub fn new(id: impl Into<ResultId>, origin: Origin, bytes: u64) -> Self {
        Self { id: id.into(), origin, bytes }
    }
}

/// A store of large results.
///
/// `testkit::contract::result_store` checks your own store against this contract.
#[async_trait]
pub trait ResultStore: Send + Sync {
    /// Stores a result. When it returns, the result is as durable as the store's options require.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the result is stored completely or not at all.
    async fn put(&self, result: NewResult) -> Result<ResultId, StoreError>;

    /// Stores a result of another store under its own id; an existing one stays unchanged.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    ///
    /// # Cancel safety
    ///
    /// As [`ResultStore::put`].
    async fn keep(&self, result: ResultRecord) -> Result<(), StoreError>;

    /// Records that another store had a result with this id and removed it.
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

    /// Lists results, newest first; of equal times, the last stored first.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    async fn list(&self, filter: ResultFilter) -> Result<Vec<ResultEntry>, StoreError>;

    /// Removes results that exceed `retention` now. Their ids answer [`Lookup::Expired`] from then on.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError>;

    /// Keeps the results of a session from being pruned while it has an open run. A store that knows the open runs from
    /// its log need not do anything.
    fn hold(&self, session: &SessionId) -> Hold {
        let _ = session;
        Hold::none()
    }
}

/// Returns an id for a result of this time: `res_YYYYMMDD_HHMMSS_` and 6 hex digits, 26 characters.
///
/// # Errors
///
/// [`StoreError::Failed`] if the operating system provides no randomness.
pub fn result_id(at: Timestamp) -> Result<ResultId, StoreError> {
    Ok(ResultId::new(format!("res_{}_{}", at.compact(), random_hex()?)))
}

/// Returns the text that the model reads for a large stored result: at most [`PREVIEW_CHARS`] characters and
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

/// Returns the text that the model reads for a large result that could not be stored: as much as is allowed, with a
/// note that it was cut.
#[must_use]
pub fn truncated_text(body: &str, max_bytes: usize) -> String {
    let end = body.floor_char_boundary(max_bytes);
    format!("{}\n[Cut: {end} of {} bytes shown; the rest was not kept]", &body[..end], body.len())
}
