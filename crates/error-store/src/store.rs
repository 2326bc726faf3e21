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
pub struct StoredError {
    /// Its id; the earlier id if the session already had an equal error.
    pub id: ErrorId,
    /// Number of occurrences in the session.
    pub occurrences: u64,
}

impl StoredError {
    /// Creates the result from the id and the number of occurrences in the session.
    #[must_use]
    pub const fn new(id: ErrorId, occurrences: u64) -> Self {
        Self { id, occurrences }
    }
}

/// Counts of the errors that one tool reported in one session under one code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ErrorStats {
    /// The tool.
    pub tool: String,
    /// The code of the catalogue.
    pub reason: Code,
    /// The tool author's code.
    pub code: Option<String>,
    /// The session.
    pub session: SessionId,
    /// Number of different errors.
    pub errors: u64,
    /// Number of occurrences.
    pub occurrences: u64,
    /// Characters that the summaries saved the model, over all occurrences.
    pub chars_kept: u64,
}

impl ErrorStats {
    /// Creates empty counts.
    #[must_use]
    pub const fn new(tool: String, reason: Code, code: Option<String>, session: SessionId) -> Self {
        Self { tool, reason, code, session, errors: 0, occurrences: 0, chars_kept: 0 }
    }

    /// Sets the number of errors, of occurrences and of characters saved.
    #[must_use]
    pub const fn counting(mut self, errors: u64, occurrences: u64, chars_kept: u64) -> Self {
        self.errors = errors;
        self.occurrences = occurrences;
        self.chars_kept = chars_kept;
        self
    }
}

/// A store of whole errors.
///
/// Errors arrive redacted, valid and summarised, because [`NewError`] ensures that; a store only keeps them.
/// `testkit::contract::error_store` checks your own store against this contract.
#[async_trait]
pub trait ErrorStore: Send + Sync {
    /// Stores an error. When it returns, the error is as durable as the store's options require.
    ///
    /// An equal error in the same session is counted, not stored twice.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the error is stored completely or not at all.
    async fn store(&self, error: NewError) -> Result<StoredError, StoreError>;

    /// Stores an error of another store under its own id; an existing one stays unchanged.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    ///
    /// # Cancel safety
    ///
    /// As [`ErrorStore::store`].
    async fn keep(&self, error: ErrorRecord) -> Result<(), StoreError>;

    /// Records that another store had an error with this id and removed it.
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

    /// Lists errors, newest first; of equal times, the last stored first.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    async fn list(&self, filter: ErrorFilter) -> Result<Vec<ErrorRecord>, StoreError>;

    /// Removes errors that exceed `retention` now. Their ids answer [`Lookup::Expired`] from then on.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError>;

    /// Counts errors by tool, codes and session, at most `limit` groups, those that saved the most characters first.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    async fn stats(&self, limit: Option<u32>) -> Result<Vec<ErrorStats>, StoreError>;

    /// Counts the errors that match a filter by day, tool or code: days in their order, other groups by occurrences,
    /// the most frequent first. The limit of the filter applies to the groups.
    ///
    /// # Errors
    ///
    /// Any variant of [`StoreError`].
    async fn count(&self, filter: ErrorFilter, by: CountBy) -> Result<Vec<ErrorCount>, StoreError> {
        let limit = filter.limit;
        let errors = self.list(ErrorFilter { limit: None, ..filter }).await?;
        Ok(ErrorCount::group_errors(&errors, by, limit))
    }

    /// Keeps the errors of a session from being pruned while it has an open run. A store that knows the open runs from
    /// its log need not do anything.
    fn hold(&self, session: &SessionId) -> Hold {
        let _ = session;
        Hold::none()
    }
}
