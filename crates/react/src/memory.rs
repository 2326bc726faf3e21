//! What an agent remembers from one run to the next.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use clock::Clock;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use layer0::error::BoxError;
use layer0::event::{EventKind, MemoryDegraded, MemoryRead, MemoryWrote};
use layer0::failure::{Chain, Seconds};
use layer0::id::{RunId, SessionId};
use layer0::{Code, code};
use redact::Redactor;

use crate::running::{drop_guarded, panic_text};

/// Remembers between runs. A memory that fails, hangs or panics never fails a run: the run goes on
/// without it, and the log says so.
#[async_trait]
pub trait Memory: Send + Sync {
    /// Returns what is worth knowing for a question, the most important first.
    ///
    /// # Errors
    ///
    /// Any error; the run goes on as if nothing were remembered.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped after the agent's memory timeout.
    async fn read(&self, query: MemoryQuery) -> Result<Vec<String>, BoxError>;

    /// Takes in what a run came to.
    ///
    /// # Errors
    ///
    /// Any error; the run ends as it would have.
    ///
    /// # Cancel safety
    ///
    /// As [`Memory::read`].
    async fn write(&self, entry: MemoryEntry) -> Result<(), BoxError>;

    /// Forgets what a conversation left, or everything; says how many entries.
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
    /// The conversation.
    pub session: SessionId,
    /// The question.
    pub input: Arc<str>,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryEntry {
    /// The conversation.
    pub session: SessionId,
    /// The run.
    pub run: RunId,
    /// The question.
    pub input: Arc<str>,
    /// The answer.
    pub output: Arc<str>,
}

/// A memory that lives as long as the process, and returns the latest answers of a conversation.
#[derive(Debug)]
pub struct RecentMemory {
    entries: Mutex<Vec<MemoryEntry>>,
    capacity: usize,
}

impl RecentMemory {
    /// Makes a memory of at most `capacity` answers over all conversations.
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

/// The memory as the driver asks it: bounded, guarded, and with facts for answers.
pub(crate) struct Bounded<'a> {
    pub(crate) memory: &'a dyn Memory,
    pub(crate) limit: Duration,
    pub(crate) clock: &'a Arc<dyn Clock>,
    pub(crate) redactor: &'a Redactor,
}

impl Bounded<'_> {
    pub(crate) async fn read(&self, query: MemoryQuery) -> EventKind {
        match self.ask(self.memory.read(query), code::MEMORY_READ_FAILED).await {
            Ok(entries) => {
                let redact = |entry: String| self.redactor.redact_held(&entry).into();
                MemoryRead { entries: entries.into_iter().map(redact).collect() }.into()
            }
            Err((reason, why)) => {
                tracing::warn!(code = reason, "Memory read failed: {why}");
                degraded("read", reason, &why)
            }
        }
    }

    pub(crate) async fn write(&self, entry: MemoryEntry) -> EventKind {
        match self.ask(self.memory.write(entry), code::MEMORY_WRITE_FAILED).await {
            Ok(()) => MemoryWrote { count: 1 }.into(),
            Err((reason, why)) => {
                tracing::warn!(code = reason, "Memory write failed: {why}");
                degraded("write", reason, &why)
            }
        }
    }

    async fn ask<T>(
        &self,
        asked: impl Future<Output = Result<T, BoxError>> + Send,
        failed: &'static str,
    ) -> Result<T, (&'static str, String)> {
        let began = self.clock.now();
        let asked = AssertUnwindSafe(async {
            // An error that cannot be printed is as good as a panic.
            asked.await.map_err(|error| Chain(&*error).to_string())
        });
        let answered = select(Box::pin(asked.catch_unwind()), self.clock.sleep(self.limit)).await;
        let late = format!("no answer within {}", Seconds(self.limit));
        let (reason, why) = match answered {
            // Code that blocks its thread holds up its own timeout.
            Either::Left(_) if self.clock.now().since(began) > self.limit => {
                (code::MEMORY_TIMEOUT, late)
            }
            Either::Left((Ok(Ok(answer)), _)) => return Ok(answer),
            Either::Left((Ok(Err(why)), _)) => (failed, why),
            Either::Left((Err(panic), _)) => (code::MEMORY_PANICKED, panic_text(panic)),
            Either::Right(((), asked)) => {
                drop_guarded(asked);
                (code::MEMORY_TIMEOUT, late)
            }
        };
        Err((reason, self.redactor.redact(&why).into_owned()))
    }
}

fn degraded(operation: &str, reason: &'static str, why: &str) -> EventKind {
    MemoryDegraded {
        operation: operation.into(),
        reason: Code::new(reason),
        message: format!("Memory unavailable: {why}").into(),
    }
    .into()
}
