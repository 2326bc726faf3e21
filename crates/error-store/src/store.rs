use async_trait::async_trait;
use layer0::id::{ErrorId, SessionId};
use layer0::{Code, Timestamp};
use serde::Serialize;

use crate::{
    CountBy, ErrorCount, ErrorFilter, ErrorRecord, Hold, Lookup, NewError, Pruned, Retention,
    StoreError,
};

/// The id and count of a stored error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stored {
    /// Its id; the earlier one when the same error was stored before in the session.
    pub id: ErrorId,
    /// The number of times it was seen in the session.
    pub occurrences: u64,
}

impl Stored {
    /// States the id, and how often the error was seen in the session.
    #[must_use]
    pub const fn new(id: ErrorId, occurrences: u64) -> Self {
        Self { id, occurrences }
    }
}

/// The errors that one tool reported in one session under one code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ErrorStats {
    /// The tool.
    pub tool: String,
    /// Our code.
    pub reason: Code,
    /// The tool author's code.
    pub code: Option<String>,
    /// The session.
    pub session: SessionId,
    /// The number of different errors.
    pub errors: u64,
    /// The number of times they were seen.
    pub occurrences: u64,
    /// The characters that the summaries spared the model, over all occurrences.
    pub chars_kept: u64,
}

impl ErrorStats {
    /// Begins to count.
    #[must_use]
    pub const fn new(tool: String, reason: Code, code: Option<String>, session: SessionId) -> Self {
        Self { tool, reason, code, session, errors: 0, occurrences: 0, chars_kept: 0 }
    }

    /// Sets how many errors there are, how often they were seen, and how many characters were
    /// spared.
    #[must_use]
    pub const fn counting(mut self, errors: u64, occurrences: u64, chars_kept: u64) -> Self {
        self.errors = errors;
        self.occurrences = occurrences;
        self.chars_kept = chars_kept;
        self
    }
}

/// Keeps whole errors.
///
/// Errors arrive redacted, valid and summarised, because [`NewError`] is; a store only keeps them.
/// `testkit::contract::error_store` checks a store of your own against this contract.
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

    /// Keeps that there was an error of this id in another store, where it was taken away.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    ///
    /// # Cancel safety
    ///
    /// As [`ErrorStore::store`].
    async fn keep_expired(&self, session: &SessionId, id: &ErrorId) -> Result<(), StoreError>;

    /// Returns an error of a session.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    async fn get(
        &self,
        session: &SessionId,
        id: &ErrorId,
    ) -> Result<Lookup<ErrorRecord>, StoreError>;

    /// Returns an error of any session, for people; a model reads with [`ErrorStore::get`].
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    async fn find(&self, id: &ErrorId) -> Result<Lookup<ErrorRecord>, StoreError>;

    /// Lists errors, newest first; of one moment, the last stored first.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    async fn list(&self, filter: ErrorFilter) -> Result<Vec<ErrorRecord>, StoreError>;

    /// Takes away what `retention` does not keep at this moment. The ids answer
    /// [`Lookup::Expired`] from then on.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError>;

    /// Counts errors by tool, codes and session, the most characters kept first, at most `limit`
    /// groups.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    async fn stats(&self, limit: Option<u32>) -> Result<Vec<ErrorStats>, StoreError>;

    /// Counts the errors that a filter lets through by day, tool or code: days in their order, the rest
    /// by how often it was seen, the most often first. The limit of the filter is that of the groups.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    async fn count(&self, filter: ErrorFilter, by: CountBy) -> Result<Vec<ErrorCount>, StoreError> {
        let limit = filter.limit;
        let errors = self.list(ErrorFilter { limit: None, ..filter }).await?;
        Ok(ErrorCount::of(&errors, by, limit))
    }

    /// Keeps the errors of a session from being pruned while a run is open in it. A store that knows the open runs from
    /// its log needs to do nothing.
    fn hold(&self, session: &SessionId) -> Hold {
        let _ = session;
        Hold::none()
    }
}
