//! What an agent remembers from one run to the next.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use layer0::error::BoxError;
use layer0::id::{RunId, SessionId};

/// Remembers between runs. A memory that fails, hangs or panics never fails a run: the run goes on
/// without it, and the log says so.
#[async_trait]
pub trait Memory: Send + Sync {
    /// Returns what is worth knowing for an input, the most important first.
    ///
    /// # Errors
    ///
    /// Any error; the run goes on as if nothing were remembered.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped after the agent's memory timeout.
    async fn read(&self, query: MemoryQuery) -> Result<Vec<String>, BoxError>;

    /// Takes in what a run came to. A run that was reopened comes to something again, which replaces what
    /// it came to before.
    ///
    /// # Errors
    ///
    /// Any error; the run ends as it would have.
    ///
    /// # Cancel safety
    ///
    /// As [`Memory::read`].
    async fn write(&self, entry: MemoryEntry) -> Result<(), BoxError>;

    /// Forgets what a session left, or everything; says how many entries.
    ///
    /// # Errors
    ///
    /// Any error.
    async fn forget(&self, session: Option<&SessionId>) -> Result<u64, BoxError>;
}

/// What a run is about to be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryQuery {
    /// The session.
    pub session: SessionId,
    /// The input.
    pub input: Arc<str>,
}

impl MemoryQuery {
    /// Makes the query of a run of a session.
    pub fn new(session: impl Into<SessionId>, input: impl Into<Arc<str>>) -> Self {
        Self { session: session.into(), input: input.into() }
    }
}

/// What a run came to.
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
    /// Makes the entry of a run that was asked `input` and answered `output`.
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

/// A memory that lives as long as the process, and returns the latest answers of a session.
#[derive(Debug)]
pub struct RecentMemory {
    entries: Mutex<Vec<MemoryEntry>>,
    capacity: usize,
}

impl RecentMemory {
    /// Makes a memory of at most `capacity` answers over all sessions.
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
