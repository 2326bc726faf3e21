mod add;
mod change;
mod removal;
mod row;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use backstop_error_store::StoreError;
use backstop_redact::Redactor;
use backstop_state::{PreparedWrite, check_identity, prefix_end, words};
use layer0::error::StateError;
use layer0::failure::{Chain, Effect, Failure};
use layer0::state::{
    Added, Expected, InvalidScope, Scope, StateAdd, StateEntry, StateQuery, StateWrite, Versioned,
};
use layer0::{StateStore, Timestamp};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::background;
use crate::chore::Chore;
use crate::database::Database;

use add::Addition;
pub(crate) use change::{Change, Changed, write};
use removal::{Clear, Delete};
pub(crate) use removal::{ExpireState, clear_in_steps, merge_words};
use row::{decode_versioned, unreadable};

/// The state store in a [`Database`].
#[derive(Clone)]
pub struct SqliteStateStore {
    database: Database,
    clock: Arc<dyn Clock>,
    redactor: Redactor,
}

impl SqliteStateStore {
    pub(crate) fn new(database: Database) -> Self {
        Self { database, clock: Arc::new(SystemClock), redactor: Redactor::new() }
    }

    /// Takes the time from this clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Takes out what this redactor knows to be secret.
    #[must_use]
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    async fn perform(&self, chore: impl Chore + 'static) -> Result<u64, StateError> {
        let done = self.database.for_writing().map_err(not_written)?.perform(chore).await;
        background::after(&self.database, self.time());
        done.map_err(write_failed)
    }

    fn time(&self) -> Timestamp {
        // time of day: values expire by the clock of the store, which a rehearsal may set.
        self.clock.now()
    }
}

impl fmt::Debug for SqliteStateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqliteStateStore").field(&self.database).finish()
    }
}

#[async_trait]
impl StateStore for SqliteStateStore {
    async fn read(&self, scope: &Scope, key: &str) -> Result<Option<Versioned>, StateError> {
        check_identity(scope, key, &self.redactor)?;
        let row = sqlx::query(
            "SELECT number, at, expires_at, value FROM state \
             WHERE scope = $1 AND key = $2 AND (expires_at IS NULL OR expires_at > $3)",
        )
        .bind(scope.to_string())
        .bind(key)
        .bind(self.time().as_millis())
        .fetch_optional(self.database.readers())
        .await
        .map_err(unreadable)?;
        row.as_ref().map(decode_versioned).transpose()
    }

    async fn write(&self, write: StateWrite) -> Result<u64, StateError> {
        let prepared = PreparedWrite::new(write, &self.redactor, self.time())?;
        let (scope, key) = (prepared.scope.clone(), prepared.key.clone());
        let writer = self.database.for_writing().map_err(not_written)?;
        let changed = writer.change(Change::new(prepared)).await;
        background::after(&self.database, self.time());
        match changed.map_err(write_failed)? {
            Changed::Written(version) => Ok(version),
            Changed::Refused(found) => Err(StateError::conflict(&scope, key, found)),
        }
    }

    async fn add(&self, add: StateAdd) -> Result<Added, StateError> {
        check_identity(&add.scope, &add.key, &self.redactor)?;
        let (add, outcome) = Addition::new(add, &self.redactor, self.time());
        self.perform(add).await?;
        outcome.take()
    }

    async fn delete(
        &self,
        scope: &Scope,
        key: &str,
        expected: Expected,
    ) -> Result<bool, StateError> {
        check_identity(scope, key, &self.redactor)?;
        let (delete, found) = Delete::new(scope, key, expected, self.time());
        let deleted = self.perform(delete).await? > 0;
        match deleted || expected.allows(found.get()) {
            true => Ok(deleted),
            false => Err(StateError::conflict(scope, key, found.get())),
        }
    }

    async fn list(&self, query: StateQuery) -> Result<Vec<StateEntry>, StateError> {
        let StateQuery { scope, prefix, after, backwards, newest_first, limit, .. } = query;
        let after = after.filter(|_| !newest_first);
        // Keys with the same prefix are adjacent.
        let listed = match backwards {
            _ if newest_first => {
                "SELECT key, number, at, expires_at, value FROM state \
                 WHERE scope = $1 AND key >= $2 AND key < $6 AND $3 IS NULL \
                 AND (expires_at IS NULL OR expires_at > $4) ORDER BY number DESC LIMIT $5"
            }
            false => {
                "SELECT key, number, at, expires_at, value FROM state \
                 WHERE scope = $1 AND key >= $2 AND key < $6 AND ($3 IS NULL OR key > $3) \
                 AND (expires_at IS NULL OR expires_at > $4) ORDER BY key LIMIT $5"
            }
            true => {
                "SELECT key, number, at, expires_at, value FROM state \
                 WHERE scope = $1 AND key >= $2 AND key < $6 \
                 AND ($3 IS NULL OR key < $3) \
                 AND (expires_at IS NULL OR expires_at > $4) ORDER BY key DESC LIMIT $5"
            }
        };
        let rows = sqlx::query(listed)
            .bind(scope.to_string())
            .bind(&prefix)
            .bind(after)
            .bind(self.time().as_millis())
            .bind(limit)
            .bind(prefix_end(&prefix))
            .fetch_all(self.database.readers())
            .await
            .map_err(unreadable)?;
        entries(&rows)
    }

    async fn search(&self, query: StateQuery, text: &str) -> Result<Vec<StateEntry>, StateError> {
        let StateQuery { scope, prefix, limit, .. } = query;
        let any: Vec<String> = words(text).map(|word| format!("\"{word}\"")).collect();
        if any.is_empty() {
            return Ok(Vec::new());
        }
        let place: Vec<String> = words(&scope.to_string()).collect();
        let wanted = format!("place : \"{}\" AND words : ({})", place.join(" "), any.join(" OR "));
        let rows = sqlx::query(
            "SELECT key, number, at, expires_at, value FROM state_words \
             JOIN state ON state.number = state_words.rowid \
             WHERE state_words MATCH $1 AND scope = $2 AND substr(key, 1, length($3)) = $3 \
             AND (expires_at IS NULL OR expires_at > $4) \
             ORDER BY bm25(state_words, 0.0, 1.0), number DESC LIMIT $5",
        )
        .bind(wanted)
        .bind(scope.to_string())
        .bind(prefix)
        .bind(self.time().as_millis())
        .bind(limit)
        .fetch_all(self.database.readers())
        .await
        .map_err(unreadable)?;
        entries(&rows)
    }

    async fn scopes(&self, after: Option<&Scope>, limit: u32) -> Result<Vec<Scope>, StateError> {
        let scopes: Vec<String> = sqlx::query_scalar(SCOPES)
            .bind(after.map(ToString::to_string).unwrap_or_default())
            .bind(self.time().as_millis())
            .bind(limit)
            .fetch_all(self.database.readers())
            .await
            .map_err(unreadable)?;
        let read = |text: String| text.parse();
        let scopes: Result<Vec<Scope>, InvalidScope> = scopes.into_iter().map(read).collect();
        scopes.map_err(|error| StateError::Serialization(error.to_string()))
    }

    async fn clear(&self, scope: &Scope) -> Result<u64, StateError> {
        self.perform(Clear(scope.clone())).await
    }
}

/// Lists at most `$3` scopes after `$1` that have a value at time `$2`: a loose index scan, with one step for each
/// scope, however many values it has.
const SCOPES: &str = "WITH RECURSIVE next (scope) AS (SELECT (SELECT min(scope) FROM state WHERE scope > $1) \
     UNION ALL SELECT (SELECT min(scope) FROM state WHERE state.scope > next.scope) \
     FROM next WHERE next.scope IS NOT NULL) \
     SELECT scope FROM next WHERE scope IS NOT NULL AND EXISTS (SELECT 1 FROM state \
     WHERE state.scope = next.scope AND (expires_at IS NULL OR expires_at > $2)) LIMIT $3";

fn entries(rows: &[SqliteRow]) -> Result<Vec<StateEntry>, StateError> {
    let entry =
        |row: &SqliteRow| Ok((row.try_get("key").map_err(unreadable)?, decode_versioned(row)?));
    rows.iter().map(entry).collect()
}

/// Makes the error of a write that was not made.
fn not_written(error: StoreError) -> StateError {
    StateError::WriteFailed(Chain(&error).to_string())
}

/// Makes the error of a write: one whose effect is not known may have been made.
fn write_failed(error: StoreError) -> StateError {
    match error.effect() {
        Effect::None => not_written(error),
        _ => StateError::Other(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;

    /// Spec: E2
    #[test]
    fn write_without_an_answer_may_have_acted() {
        let errors = [
            StoreError::Closed,
            StoreError::Full("full".into()),
            StoreError::Locked("locked".into()),
            StoreError::Failed("the disk failed at the commit".into()),
            StoreError::Lost("x.db".into()),
        ];
        for error in errors {
            let (effect, said) = (error.effect(), error.to_string());
            assert_eq!(write_failed(error).effect(), effect, "{said}");
        }
    }

    /// Spec: K1
    #[tokio::test]
    async fn scopes_are_listed_in_steps() {
        let database = Database::in_memory().await.unwrap();
        let plan = plan(&database, SCOPES).await;
        let steps: Vec<&String> = plan.iter().filter(|line| line.contains(" state ")).collect();
        assert_eq!(steps.len(), 3, "{plan:#?}");
        assert!(steps.iter().all(|line| line.starts_with("SEARCH state ")), "{plan:#?}");
    }
}
