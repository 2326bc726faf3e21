use std::fmt;
use std::sync::Arc;

use layer0::StateStore;
use layer0::error::StateError;
use layer0::id::SessionId;
use layer0::state::{Expected, Scope, StateEntry, StateQuery, StateWrite};
use serde_json::{Value, json};

/// Prefix of the keys of entries; the entry's id follows.
const PREFIX: &str = "memory/";
/// Maximum bytes of a stored text.
const MAX_TEXT: usize = 16 * 1024;
/// Number of keys read at a time.
const PAGE: u32 = 100;

/// An agent's memory in a state store: results of runs, and notes. Each entry has an id; the ids of runs sort by time.
#[derive(Clone)]
pub struct MemoryEntries {
    store: Arc<dyn StateStore>,
    /// The scope of all entries; their own session if `None`.
    scope: Option<Scope>,
}

/// An entry of a memory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Remembered {
    /// Id of the entry.
    pub id: String,
    /// Input and answer of a run, or a note.
    pub text: String,
}

impl MemoryEntries {
    /// Creates a memory that stores each entry in the session it comes from.
    pub fn of_session(store: Arc<dyn StateStore>) -> Self {
        Self { store, scope: None }
    }

    /// Creates a memory that stores all entries in one scope.
    pub fn with_scope(store: Arc<dyn StateStore>, scope: Scope) -> Self {
        Self { store, scope: Some(scope) }
    }

    /// Returns the kind of the entries' scope: `session`, `agent`, `global`, …
    #[must_use]
    pub fn kind(&self) -> String {
        let scope = self.scope.as_ref().map(ToString::to_string);
        scope.map_or_else(
            || "session".to_owned(),
            |text| text.split(':').next().unwrap_or_default().to_owned(),
        )
    }

    /// Stores the result of a run, replacing an earlier one.
    ///
    /// # Errors
    ///
    /// As [`StateStore::write`].
    ///
    /// # Cancel safety
    ///
    /// As [`StateStore::write`].
    pub async fn keep(
        &self,
        session: &SessionId,
        run: &str,
        input: &str,
        output: &str,
    ) -> Result<(), StateError> {
        let value = json!({ "input": cut(input), "output": cut(output), "session": session });
        self.write(session, run, value).await
    }

    /// Stores a note under an id, replacing an earlier one.
    ///
    /// # Errors
    ///
    /// As [`StateStore::write`].
    ///
    /// # Cancel safety
    ///
    /// As [`StateStore::write`].
    pub async fn note(&self, session: &SessionId, id: &str, text: &str) -> Result<(), StateError> {
        self.write(session, id, json!({ "note": cut(text), "session": session })).await
    }

    async fn write(&self, session: &SessionId, id: &str, value: Value) -> Result<(), StateError> {
        let key = format!("{PREFIX}{id}");
        self.store.write(StateWrite::new(self.scope(session), key, value)).await.map(drop)
    }

    /// Returns the entries that match a text best.
    ///
    /// # Errors
    ///
    /// As [`StateStore::search`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn search(
        &self,
        session: &SessionId,
        text: &str,
        most: u32,
    ) -> Result<Vec<Remembered>, StateError> {
        let found = self.store.search(self.query(session).limit(most), text).await?;
        Ok(found.into_iter().map(decode_entry).collect())
    }

    /// Returns the entries that were written last, newest first.
    ///
    /// # Errors
    ///
    /// As [`StateStore::list`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn newest(
        &self,
        session: &SessionId,
        most: u32,
    ) -> Result<Vec<Remembered>, StateError> {
        let found = self.store.list(self.query(session).newest_first().limit(most)).await?;
        Ok(found.into_iter().map(decode_entry).collect())
    }

    /// Removes an entry; returns whether there was one.
    ///
    /// # Errors
    ///
    /// As [`StateStore::delete`].
    ///
    /// # Cancel safety
    ///
    /// As [`StateStore::delete`].
    pub async fn remove(&self, session: &SessionId, id: &str) -> Result<bool, StateError> {
        let key = format!("{PREFIX}{id}");
        self.store.delete(&self.scope(session), &key, Expected::Any).await
    }

    /// Removes the entries of a session, or all; returns their number.
    ///
    /// # Errors
    ///
    /// As [`StateStore::list`] and [`StateStore::delete`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some entries may be left; another call removes them.
    pub async fn forget(&self, session: Option<&SessionId>) -> Result<u64, StateError> {
        if let Some(scope) = &self.scope {
            return self.forget_in(scope, session).await;
        }
        if let Some(session) = session {
            return self.forget_in(&Scope::Session(session.clone()), None).await;
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

    /// Removes the entries of a session in a scope, or all entries of the scope.
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
                if session.is_none_or(|session| found.value.value()["session"] == session.as_str())
                {
                    let removed = self.store.delete(scope, key, Expected::Any).await?;
                    forgotten += u64::from(removed);
                }
            }
        }
    }

    fn query(&self, session: &SessionId) -> StateQuery {
        StateQuery::new(self.scope(session)).prefix(PREFIX)
    }

    fn scope(&self, session: &SessionId) -> Scope {
        self.scope.clone().unwrap_or_else(|| Scope::Session(session.clone()))
    }
}

impl fmt::Debug for MemoryEntries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryEntries").field("scope", &self.scope).finish_non_exhaustive()
    }
}

fn decode_entry((key, found): StateEntry) -> Remembered {
    let value = found.value.value();
    let text = |key: &str| value[key].as_str();
    let said = || {
        let (input, output) = (text("input"), text("output"));
        format!("{} → {}", input.unwrap_or_default(), output.unwrap_or_default())
    };
    let id = key.strip_prefix(PREFIX).unwrap_or(&key).to_owned();
    Remembered { id, text: text("note").map_or_else(said, ToOwned::to_owned) }
}

/// Shortens a text that is too long, between two characters.
fn cut(text: &str) -> &str {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}
