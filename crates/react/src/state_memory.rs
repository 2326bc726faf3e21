//! A memory that outlives the process.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use backstop_state::MemoryEntries;
use layer0::StateStore;
use layer0::error::BoxError;
use layer0::id::SessionId;
use layer0::state::Scope;

use crate::memory::{Memory, MemoryEntry, MemoryQuery};

/// Default maximum number of entries that a read returns.
const ENTRIES: u32 = 8;
/// End mark of an entry that was cut.
const MARK: &str = " … [cut]";
/// Minimum number of bytes of an entry that is cut.
const MIN_BYTES: usize = 32;
/// Default maximum number of bytes of all entries together.
const BYTES: usize = 8 * 1024;

/// A memory in a state store: the input and the answer of each run. A run reads the entries that fit its input best,
/// then the newest ones, by default at most 8 with 8 KiB together; an entry that is too long for the rest is cut, with
/// a mark.
///
/// ```
/// use std::sync::Arc;
///
/// use backstop_provider::ScriptedProvider;
/// use backstop_react::{Agent, StateMemory};
/// use backstop_state::MemoryStateStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // With `Database::state` of a SQLite file it is there in the next process too.
/// let state = Arc::new(MemoryStateStore::new());
/// let agent = Agent::builder(ScriptedProvider::saying(["Noted.", "They like euros."]))
///     .memory(StateMemory::of_agent(state, "clerk"))
///     .build()?;
/// agent.run("Alice prefers euros.").await?;
/// agent.run("What does Alice prefer?").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct StateMemory {
    kept: MemoryEntries,
    entries: u32,
    bytes: usize,
}

impl StateMemory {
    /// Returns a memory of the runs of one session.
    pub fn of_session(store: Arc<dyn StateStore>) -> Self {
        Self::new(MemoryEntries::of_session(store))
    }

    /// Returns a memory of the runs of an agent in all sessions.
    pub fn of_agent(store: Arc<dyn StateStore>, agent: impl Into<String>) -> Self {
        Self::in_scope(store, Scope::Agent(agent.into()))
    }

    /// Returns a memory in this scope, such as [`Scope::Global`] or that of a customer.
    pub fn in_scope(store: Arc<dyn StateStore>, scope: Scope) -> Self {
        Self::new(MemoryEntries::with_scope(store, scope))
    }

    /// Returns a memory of these entries, which tools may change too.
    #[must_use]
    pub const fn new(kept: MemoryEntries) -> Self {
        Self { kept, entries: ENTRIES, bytes: BYTES }
    }

    /// Sets the maximum number of entries that a run reads.
    #[must_use]
    pub const fn entries(mut self, most: u32) -> Self {
        self.entries = most;
        self
    }

    /// Sets the maximum number of bytes that a run reads.
    #[must_use]
    pub const fn bytes(mut self, most: usize) -> Self {
        self.bytes = most;
        self
    }
}

#[async_trait]
impl Memory for StateMemory {
    async fn read(&self, query: MemoryQuery) -> Result<Vec<String>, BoxError> {
        let MemoryQuery { session, input } = query;
        let fitting = self.kept.search(&session, &input, self.entries).await?;
        let newest = self.kept.newest(&session, self.entries).await?;
        let most = usize::try_from(self.entries).unwrap_or(usize::MAX);
        let (mut known, mut left, mut texts) = (BTreeSet::new(), self.bytes, Vec::new());
        for entry in fitting.into_iter().chain(newest) {
            if texts.len() == most {
                break;
            }
            if known.insert(entry.id)
                && let Some(text) = within(entry.text, left)
            {
                left -= text.len();
                texts.push(text);
            }
        }
        Ok(texts)
    }

    async fn write(&self, entry: MemoryEntry) -> Result<(), BoxError> {
        let MemoryEntry { session, run, input, output } = entry;
        Ok(self.kept.keep(&session, run.as_str(), &input, &output).await?)
    }

    async fn forget(&self, session: Option<&SessionId>) -> Result<u64, BoxError> {
        Ok(self.kept.forget(session).await?)
    }
}

/// Cuts a text that is too long for the rest, between two characters and with a mark; `None` if the rest is too small
/// to be of use.
fn within(text: String, left: usize) -> Option<String> {
    if text.len() <= left {
        return Some(text);
    }
    let most = left.checked_sub(MARK.len()).filter(|most| *most >= MIN_BYTES)?;
    let end = text.floor_char_boundary(most);
    Some(format!("{}{MARK}", &text[..end]))
}

#[cfg(test)]
mod tests {
    use backstop_state::MemoryStateStore;

    use super::*;

    async fn read(memory: &StateMemory, input: &str) -> Vec<String> {
        memory.read(MemoryQuery::new("s", input)).await.unwrap()
    }

    /// Spec: K2. A note sorts before runs by its id.
    #[tokio::test]
    async fn what_was_written_last_is_newest() {
        let entries = MemoryEntries::of_session(Arc::new(MemoryStateStore::new()));
        let memory = StateMemory::new(entries.clone()).entries(2);
        for run in ["run_1", "run_2", "run_3"] {
            memory.write(MemoryEntry::new("s", run, run, "x")).await.unwrap();
        }
        entries.note(&"s".into(), "note_0", "Alice prefers euros").await.unwrap();
        assert_eq!(read(&memory, "unrelated").await, ["Alice prefers euros", "run_3 → x"]);
    }

    /// Spec: K2
    #[tokio::test]
    async fn long_entries_are_cut_with_a_mark() {
        let entries = MemoryEntries::of_session(Arc::new(MemoryStateStore::new()));
        let memory = StateMemory::new(entries.clone()).bytes(100);
        let report = format!("dollar report {}", "é".repeat(200));
        entries.note(&"s".into(), "a", &report).await.unwrap();
        entries.note(&"s".into(), "b", "short").await.unwrap();
        let read = read(&memory, "dollar").await;
        assert_eq!(read.len(), 1, "nothing is left for others: {read:?}");
        assert!(read[0].starts_with("dollar report éé") && read[0].ends_with("é … [cut]"));
        assert!((99..=100).contains(&read[0].len()), "{}", read[0].len());
        assert_eq!(within("x".repeat(50), 40), None);
    }
}
