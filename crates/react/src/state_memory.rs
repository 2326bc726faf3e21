//! A memory that outlives the process.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use layer0::StateStore;
use layer0::error::{BoxError, StateError};
use layer0::id::SessionId;
use layer0::state::{Expected, Scope, StateQuery, StateWrite};
use serde_json::{Value, json};

use crate::memory::{Memory, MemoryEntry, MemoryQuery};

/// Where the entries of a scope are: below this, by their runs, whose ids sort by time.
const PREFIX: &str = "memory/";
/// How many entries a read returns at most, unless told otherwise.
const ENTRIES: u32 = 8;
/// How many bytes they have together at most, unless told otherwise.
const BYTES: usize = 8 * 1024;
/// How many bytes of an input, and of an answer, are kept.
const MAX_TEXT: usize = 16 * 1024;
/// How many keys are looked at at a time.
const PAGE: u32 = 100;

/// A memory in a state store: what each run was asked and what it answered. A run reads the entries that fit its
/// input best, then the newest, at most 8 of together 8 KiB unless told otherwise.
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
#[derive(Clone)]
pub struct StateMemory {
    store: Arc<dyn StateStore>,
    /// Where entries are; in their session where `None`.
    scope: Option<Scope>,
    entries: u32,
    bytes: usize,
}

impl StateMemory {
    /// Remembers what runs of the same session came to.
    pub fn of_session(store: Arc<dyn StateStore>) -> Self {
        Self { store, scope: None, entries: ENTRIES, bytes: BYTES }
    }

    /// Remembers what runs of an agent came to, whatever their session.
    pub fn of_agent(store: Arc<dyn StateStore>, agent: impl Into<String>) -> Self {
        Self::of(store, Scope::Agent(agent.into()))
    }

    /// Remembers in this scope, such as [`Scope::Global`] or that of a customer.
    pub fn of(store: Arc<dyn StateStore>, scope: Scope) -> Self {
        Self { scope: Some(scope), ..Self::of_session(store) }
    }

    /// Returns at most so many entries to a run.
    #[must_use]
    pub const fn entries(mut self, most: u32) -> Self {
        self.entries = most;
        self
    }

    /// Returns at most so many bytes to a run.
    #[must_use]
    pub const fn bytes(mut self, most: usize) -> Self {
        self.bytes = most;
        self
    }

    fn scope(&self, session: &SessionId) -> Scope {
        self.scope.clone().unwrap_or_else(|| Scope::Session(session.clone()))
    }

    /// Removes the entries of a scope that a session left, or all of them.
    async fn forget_in(
        &self,
        scope: &Scope,
        session: Option<&SessionId>,
    ) -> Result<u64, StateError> {
        let mut query = StateQuery::new(scope.clone()).prefix(PREFIX).limit(PAGE);
        let mut forgotten = 0;
        loop {
            let page = self.store.list(query.clone()).await?;
            let Some((last, _)) = page.last() else { return Ok(forgotten) };
            query = query.after(last.clone());
            for (key, found) in &page {
                if session.is_none_or(|session| found.value["session"] == session.as_str()) {
                    let removed = self.store.delete(scope, key, Expected::Any).await?;
                    forgotten += u64::from(removed);
                }
            }
        }
    }
}

#[async_trait]
impl Memory for StateMemory {
    async fn read(&self, query: MemoryQuery) -> Result<Vec<String>, BoxError> {
        let of_scope = StateQuery::new(self.scope(&query.session)).prefix(PREFIX);
        let of_scope = of_scope.limit(self.entries);
        let fitting = self.store.search(of_scope.clone(), &query.input).await?;
        let newest = self.store.list(of_scope.backwards()).await?;
        let mut known = BTreeSet::new();
        let mut left = self.bytes;
        let mut texts = Vec::new();
        for (key, found) in fitting.into_iter().chain(newest) {
            if texts.len() >= usize::try_from(self.entries).unwrap_or(usize::MAX) {
                break;
            }
            let text = text_of(&found.value);
            if !known.insert(key) || text.len() > left {
                continue;
            }
            left -= text.len();
            texts.push(text);
        }
        Ok(texts)
    }

    async fn write(&self, entry: MemoryEntry) -> Result<(), BoxError> {
        let MemoryEntry { session, run, input, output } = entry;
        let value = json!({
            "input": cut(&input), "output": cut(&output), "session": session, "run": run,
        });
        let key = format!("{PREFIX}{run}");
        self.store.write(StateWrite::new(self.scope(&session), key, value)).await?;
        Ok(())
    }

    async fn forget(&self, session: Option<&SessionId>) -> Result<u64, BoxError> {
        if let Some(scope) = &self.scope {
            return Ok(self.forget_in(scope, session).await?);
        }
        if let Some(session) = session {
            return Ok(self.forget_in(&Scope::Session(session.clone()), None).await?);
        }
        let (mut forgotten, mut after) = (0, None);
        loop {
            let scopes = self.store.scopes(after.as_ref(), PAGE).await?;
            let Some(last) = scopes.last() else { return Ok(forgotten) };
            after = Some(last.clone());
            for scope in scopes.iter().filter(|scope| matches!(scope, Scope::Session(_))) {
                forgotten += self.forget_in(scope, None).await?;
            }
        }
    }
}

/// Says an entry as the model reads it.
fn text_of(value: &Value) -> String {
    let text = |key: &str| value[key].as_str().unwrap_or_default();
    format!("{} → {}", text("input"), text("output"))
}

/// Cuts a text that is too long, between two characters.
fn cut(text: &str) -> &str {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}
