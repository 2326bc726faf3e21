use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use backstop_error_store::StoreError;
use backstop_redact::Redactor;
use backstop_state::{PreparedWrite, check_identity, prefix_end};
use layer0::error::StateError;
use layer0::failure::{Chain, Effect, Failure};
use layer0::state::{
    Added, Expected, InvalidScope, Scope, StateAdd, StateEntry, StateQuery, StateWrite, Versioned,
};
use layer0::{JsonText, StateStore, Timestamp};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use crate::background;
use crate::database::Database;
use crate::fault::{Fault, UnansweredCommit};
use crate::pool::Lent;
use crate::rows::{to_i64, to_u64};
use crate::server_time::given_ms;
use crate::state_add::StateAddition;
use crate::state_removal::clear;
use crate::state_scopes::SCOPES;
use crate::state_words::index_words;
use crate::text::{column, encode_text};
use crate::transact::{TransactionWork, transact};

/// The state store in a [`Database`]: every write is one statement on a condition, so that any number of processes
/// may write. The clock of the server decides which values have expired, unless another clock is set.
#[derive(Clone)]
pub struct PostgresStateStore {
    database: Database,
    /// The clock of a rehearsal or a test.
    clock: Option<Arc<dyn Clock>>,
    redactor: Redactor,
}

impl PostgresStateStore {
    pub(crate) fn new(database: Database) -> Self {
        Self { database, clock: None, redactor: Redactor::new() }
    }

    /// Takes the time from this clock, and not from the server.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Takes out what this redactor knows to be secret.
    #[must_use]
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    /// Returns the time in milliseconds, or `None` to use the server's time.
    fn time(&self) -> Option<i64> {
        // time of day: a clock that was set is meant.
        self.clock.as_ref().map(|clock| clock.now().as_millis())
    }

    async fn lend(&self) -> Result<Lent, StateError> {
        self.database.pool().lend().await.map_err(unreadable)
    }

    async fn perform<W>(&self, work: &W) -> Result<W::Done, StateError>
    where
        W: TransactionWork<Error = StoreError>,
    {
        let pool = self.database.for_writing().map_err(write_failed)?;
        let done = transact(pool, self.database.options().patience, work).await;
        // time of day: it only says whether the next pruning is due.
        let now = self.time().map_or_else(|| SystemClock.now(), Timestamp::from_millis);
        background::after(&self.database, now);
        done.map_err(write_failed)
    }
}

impl fmt::Debug for PostgresStateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresStateStore").field(&self.database).finish()
    }
}

#[async_trait]
impl StateStore for PostgresStateStore {
    async fn read(&self, scope: &Scope, key: &str) -> Result<Option<Versioned>, StateError> {
        check_identity(scope, key, &self.redactor)?;
        let row = sqlx::query(concat!(
            "SELECT version, at, expires_at, value FROM backstop.state \
             WHERE scope = $1 AND key = $2 AND (expires_at IS NULL OR expires_at > ",
            given_ms!("$3"),
            ")"
        ))
        .bind(&*encode_text(&scope.to_string()))
        .bind(&*encode_text(key))
        .bind(self.time())
        .fetch_optional(&mut *self.lend().await?)
        .await
        .map_err(unreadable)?;
        row.as_ref().map(decode_versioned).transpose()
    }

    async fn write(&self, write: StateWrite) -> Result<u64, StateError> {
        let prepared = PreparedWrite::new(write, &self.redactor, Timestamp::default())?;
        match self.perform(&Write { write: &prepared, now: self.time() }).await? {
            Changed::Done(version) => Ok(version),
            Changed::Refused(found) => {
                Err(StateError::conflict(&prepared.scope, prepared.key.clone(), found))
            }
        }
    }

    async fn add(&self, add: StateAdd) -> Result<Added, StateError> {
        // Validated like a write.
        let write = StateWrite::new(add.scope.clone(), add.key.clone(), JsonText::default());
        PreparedWrite::new(write, &self.redactor, Timestamp::default())?;
        let done = self.perform(&StateAddition { add: &add, now: self.time() }).await?;
        let error = || StateError::Serialization("the stored value is no whole number".to_owned());
        done.ok_or_else(error)
    }

    async fn delete(
        &self,
        scope: &Scope,
        key: &str,
        expected: Expected,
    ) -> Result<bool, StateError> {
        check_identity(scope, key, &self.redactor)?;
        let delete = Delete { scope, key, expected, now: self.time() };
        match self.perform(&delete).await? {
            Changed::Done(_) => Ok(true),
            Changed::Refused(found) if expected.allows(found) => Ok(false),
            Changed::Refused(found) => Err(StateError::conflict(scope, key, found)),
        }
    }

    async fn list(&self, query: StateQuery) -> Result<Vec<StateEntry>, StateError> {
        let StateQuery { scope, prefix, after, backwards, newest_first, limit, .. } = query;
        let after = after.filter(|_| !newest_first);
        // Keys with the same prefix are adjacent.
        let listed = match backwards {
            _ if newest_first => {
                concat!(
                    "SELECT key, version, at, expires_at, value FROM backstop.state \
                 WHERE scope = $1 AND key >= $2 AND key < $3 AND $4::text IS NULL \
                 AND (expires_at IS NULL OR expires_at > ",
                    given_ms!("$5"),
                    ") ORDER BY version DESC LIMIT $6"
                )
            }
            false => {
                concat!(
                    "SELECT key, version, at, expires_at, value FROM backstop.state \
                 WHERE scope = $1 AND key >= $2 AND key < $3 AND ($4::text IS NULL OR key > $4) \
                 AND (expires_at IS NULL OR expires_at > ",
                    given_ms!("$5"),
                    ") ORDER BY key LIMIT $6"
                )
            }
            true => {
                concat!(
                    "SELECT key, version, at, expires_at, value FROM backstop.state \
                 WHERE scope = $1 AND key >= $2 AND key < $3 AND ($4::text IS NULL OR key < $4) \
                 AND (expires_at IS NULL OR expires_at > ",
                    given_ms!("$5"),
                    ") ORDER BY key DESC LIMIT $6"
                )
            }
        };
        let prefix = encode_text(&prefix).into_owned();
        let rows = sqlx::query(listed)
            .bind(&*encode_text(&scope.to_string()))
            .bind(&prefix)
            .bind(prefix_end(&prefix))
            .bind(after.map(|after| encode_text(&after).into_owned()))
            .bind(self.time())
            .bind(i64::from(limit))
            .fetch_all(&mut *self.lend().await?)
            .await
            .map_err(unreadable)?;
        rows.iter().map(entry).collect()
    }

    async fn search(&self, query: StateQuery, text: &str) -> Result<Vec<StateEntry>, StateError> {
        let StateQuery { scope, prefix, limit, .. } = query;
        let wanted = index_words(text);
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        // Those with the most of the words first, then the newest.
        let rows = sqlx::query(concat!(
            "SELECT key, version, at, expires_at, value FROM backstop.state \
             WHERE words && $1 AND scope = $2 AND starts_with(key, $3) \
             AND (expires_at IS NULL OR expires_at > ",
            given_ms!("$4"),
            ") ORDER BY (SELECT count(*) FROM unnest(words) AS word WHERE word = ANY ($1)) DESC, \
             version DESC LIMIT $5"
        ))
        .bind(wanted)
        .bind(&*encode_text(&scope.to_string()))
        .bind(&*encode_text(&prefix))
        .bind(self.time())
        .bind(i64::from(limit))
        .fetch_all(&mut *self.lend().await?)
        .await
        .map_err(unreadable)?;
        rows.iter().map(entry).collect()
    }

    async fn scopes(&self, after: Option<&Scope>, limit: u32) -> Result<Vec<Scope>, StateError> {
        let rows = sqlx::query(SCOPES)
            .bind(&*encode_text(&after.map(ToString::to_string).unwrap_or_default()))
            .bind(self.time())
            .bind(i64::from(limit))
            .fetch_all(&mut *self.lend().await?)
            .await
            .map_err(unreadable)?;
        let scope = |row: &PgRow| -> Result<Scope, StateError> {
            let text = column(row, "scope").map_err(unreadable)?;
            text.parse().map_err(|error: InvalidScope| StateError::Serialization(error.to_string()))
        };
        rows.iter().map(scope).collect()
    }

    async fn clear(&self, scope: &Scope) -> Result<u64, StateError> {
        let pool = self.database.for_writing().map_err(write_failed)?;
        // Each statement is a transaction of its own.
        let mut removed = 0;
        let cleared = clear(pool, scope, &mut removed).await;
        cleared.map(|()| removed).map_err(|error| match error.effect() {
            Effect::None if removed == 0 => StateError::WriteFailed(Chain(&error).to_string()),
            _ => StateError::Other(error.into()),
        })
    }
}

/// The outcome of a conditional change.
enum Changed {
    /// It has, or had, this version.
    Done(u64),
    /// Another version than was expected is there, or none.
    Refused(Option<u64>),
}

/// A value to write. The version is drawn once the row is locked, so that it grows from write to write.
struct Write<'a> {
    /// Prepared at time 0: its expiry is the time that it has.
    write: &'a PreparedWrite,
    now: Option<i64>,
}

#[async_trait]
impl TransactionWork for Write<'_> {
    type Done = Changed;
    type Error = StoreError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<Changed, StoreError> {
        let Self { write, now } = *self;
        let (scope, key) = (write.scope.to_string(), &write.key);
        let statement = match write.expected {
            Expected::Any => {
                concat!(
                    "INSERT INTO backstop.state AS known (scope, key, version, at, expires_at, value, words) \
                     SELECT $1, $2, nextval('backstop.state_versions'), now.ms, now.ms + $4, $5, $6 FROM (SELECT ",
                    given_ms!("$3"),
                    " AS ms) AS now \
                     ON CONFLICT (scope, key) DO UPDATE SET version = nextval('backstop.state_versions'), \
                     at = excluded.at, expires_at = excluded.expires_at, value = $5, words = $6 \
                     WHERE $7::bigint IS NULL RETURNING version"
                )
            }
            Expected::Absent => {
                concat!(
                    "INSERT INTO backstop.state AS known (scope, key, version, at, expires_at, value, words) \
                     SELECT $1, $2, nextval('backstop.state_versions'), now.ms, now.ms + $4, $5, $6 FROM (SELECT ",
                    given_ms!("$3"),
                    " AS ms) AS now \
                     ON CONFLICT (scope, key) DO UPDATE SET version = nextval('backstop.state_versions'), \
                     at = excluded.at, expires_at = excluded.expires_at, value = $5, words = $6 \
                     WHERE known.expires_at <= excluded.at AND $7::bigint IS NULL RETURNING version"
                )
            }
            Expected::Version(_) => {
                concat!(
                    "UPDATE backstop.state SET version = nextval('backstop.state_versions'), at = now.ms, \
                     expires_at = now.ms + $4, value = $5, words = $6 FROM (SELECT ",
                    given_ms!("$3"),
                    " AS ms) AS now WHERE scope = $1 AND key = $2 \
                     AND version = $7 AND (expires_at IS NULL OR expires_at > now.ms) RETURNING version"
                )
            }
            _ => return Err(unknown()),
        };
        let expected = match write.expected {
            Expected::Version(version) => Some(to_i64(version)),
            _ => None,
        };
        loop {
            let version: Option<i64> = sqlx::query_scalar(statement)
                .bind(&*encode_text(&scope))
                .bind(&*encode_text(key))
                .bind(now)
                .bind(write.expires_at.map(Timestamp::as_millis))
                .bind(write.value.get())
                .bind(index_words(&write.words))
                .bind(expected)
                .fetch_optional(&mut *connection)
                .await
                .map_err(Fault::from)?;
            if let Some(version) = version {
                return Ok(Changed::Done(to_u64(version)));
            }
            let found = find_version(connection, &scope, key, now).await?;
            // The value that was in the way may be gone by now.
            if !write.expected.allows(found) {
                return Ok(Changed::Refused(found));
            }
        }
    }
}

fn unknown() -> StoreError {
    StoreError::Failed("this store does not know what the write expects".into())
}

/// A value to remove.
struct Delete<'a> {
    scope: &'a Scope,
    key: &'a str,
    expected: Expected,
    now: Option<i64>,
}

#[async_trait]
impl TransactionWork for Delete<'_> {
    type Done = Changed;
    type Error = StoreError;

    async fn perform(&self, connection: &mut PgConnection) -> Result<Changed, StoreError> {
        let scope = self.scope.to_string();
        let expected = match self.expected {
            Expected::Any => None,
            // No value is removed; the stored version decides whether that was expected.
            Expected::Absent => Some(0),
            Expected::Version(version) => Some(to_i64(version)),
            _ => return Err(unknown()),
        };
        let version: Option<i64> = sqlx::query_scalar(
            concat!(
                "DELETE FROM backstop.state WHERE scope = $1 AND key = $2 AND (expires_at IS NULL OR expires_at > ",
                given_ms!("$3"),
                ") AND version = coalesce($4, version) RETURNING version",
            ),
        )
        .bind(&*encode_text(&scope))
        .bind(&*encode_text(self.key))
        .bind(self.now)
        .bind(expected)
        .fetch_optional(&mut *connection)
        .await
        .map_err(Fault::from)?;
        match version {
            Some(version) => Ok(Changed::Done(to_u64(version))),
            None => {
                let found = find_version(connection, &scope, self.key, self.now).await?;
                Ok(Changed::Refused(found))
            }
        }
    }
}

/// Returns the version of a value that has not expired.
async fn find_version(
    connection: &mut PgConnection,
    scope: &str,
    key: &str,
    now: Option<i64>,
) -> Result<Option<u64>, StoreError> {
    let found: Option<i64> = sqlx::query_scalar(concat!(
        "SELECT version FROM backstop.state WHERE scope = $1 AND key = $2 \
             AND (expires_at IS NULL OR expires_at > ",
        given_ms!("$3"),
        ")"
    ))
    .bind(&*encode_text(scope))
    .bind(&*encode_text(key))
    .bind(now)
    .fetch_optional(connection)
    .await
    .map_err(Fault::from)?;
    Ok(found.map(to_u64))
}

fn entry(row: &PgRow) -> Result<StateEntry, StateError> {
    Ok((column(row, "key").map_err(unreadable)?, decode_versioned(row)?))
}

fn decode_versioned(row: &PgRow) -> Result<Versioned, StateError> {
    let version: i64 = row.try_get("version").map_err(unreadable)?;
    let at = Timestamp::from_millis(row.try_get("at").map_err(unreadable)?);
    let expires_at: Option<i64> = row.try_get("expires_at").map_err(unreadable)?;
    let text: &str = row.try_get("value").map_err(unreadable)?;
    let value: JsonText =
        serde_json::from_str(text).map_err(|error| StateError::Serialization(error.to_string()))?;
    let version = Versioned::new(value, to_u64(version), at);
    Ok(version.expires_at(expires_at.map(Timestamp::from_millis)))
}

fn unreadable(error: impl Into<Fault>) -> StateError {
    StateError::Other(StoreError::from(error.into()).into())
}

/// Makes the error of a write in a transaction: but for a commit without an answer, nothing was written.
fn write_failed(error: StoreError) -> StateError {
    match &error {
        StoreError::Unreachable(source) if source.is::<UnansweredCommit>() => {
            StateError::Other(error.into())
        }
        _ => StateError::WriteFailed(Chain(&error).to_string()),
    }
}
