//! Memory of an agent from one run to the next.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use layer0::error::BoxError;
use layer0::id::{RunId, SessionId};

/// A memory between runs. If a memory fails, hangs or panics, the run continues without it, and its record has the
/// failure.
#[async_trait]
pub trait Memory: Send + Sync {
    /// Returns the entries that are useful for an input, the most important first.
    ///
    /// # Errors
    ///
    /// Any error; the run continues as if there were no entries.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped after the agent's memory timeout.
    async fn read(&self, query: MemoryQuery) -> Result<Vec<String>, BoxError>;

    /// Writes the result of a run. A run that was reopened writes another result, which replaces its earlier one.
    ///
    /// # Errors
    ///
    /// Any error; the run ends as it would have.
    ///
    /// # Cancel safety
    ///
    /// As [`Memory::read`].
    async fn write(&self, entry: MemoryEntry) -> Result<(), BoxError>;

    /// Forgets the entries of a session, or all of them; returns their number.
    ///
    /// # Errors
    ///
    /// Any error.
    async fn forget(&self, session: Option<&SessionId>) -> Result<u64, BoxError>;
}

/// The input of a run that is about to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryQuery {
    /// The session.
    pub session: SessionId,
    /// The input.
    pub input: Arc<str>,
}

impl MemoryQuery {
    /// Returns the query of a run of a session.
    pub fn new(session: impl Into<SessionId>, input: impl Into<Arc<str>>) -> Self {
        Self { session: session.into(), input: input.into() }
    }
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryEntry {
    /// The session.
    pub session: SessionId,
    /// The run.
    pub run: RunId,
    /// The input.
    pub input: Arc<str>,
    /// The answer.
    pub output: Arc<str>,
}

impl MemoryEntry {
    /// Returns the entry of a run with this input and this answer.
    pub fn new(
        session: impl Into<SessionId>,
        run: impl Into<RunId>,
        input: impl Into<Arc<str>>,
        output: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            session: session.into(),
            run: run.into(),
            input: input.into(),
            output: output.into(),
        }
    }
}

/// A memory that lasts as long as the process, and returns the latest answers of a session.
#[derive(Debug)]
pub struct RecentMemory {
    entries: Mutex<Vec<MemoryEntry>>,
    capacity: usize,
}

impl RecentMemory {
    /// Returns a memory of at most `capacity` answers over all sessions.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { entries: Mutex::default(), capacity }
    }
}

#[async_trait]
impl Memory for RecentMemory {
    async fn read(&self, query: MemoryQuery) -> Result<Vec<String>, BoxError> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let of_session = entries.iter().filter(|entry| entry.session == query.session);
        Ok(of_session.rev().map(|entry| format!("{} → {}", entry.input, entry.output)).collect())
    }

    async fn write(&self, entry: MemoryEntry) -> Result<(), BoxError> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|known| known.run != entry.run);
        entries.push(entry);
        let over = entries.len().saturating_sub(self.capacity);
        entries.drain(..over);
        Ok(())
    }

    async fn forget(&self, session: Option<&SessionId>) -> Result<u64, BoxError> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let before = entries.len();
        entries.retain(|entry| session.is_some_and(|session| entry.session != *session));
        Ok(u64::try_from(before - entries.len()).unwrap_or(u64::MAX))
    }
}
