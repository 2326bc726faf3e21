//! Removal of values, performed by the writer inside a transaction that others may share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use backstop_error_store::StoreError;
use layer0::Timestamp;
use layer0::state::{Expected, Scope};
use sqlx::{Row, SqliteConnection};

use crate::chore::Chore;
use crate::job_error::JobError;
use crate::rows::to_u64;
use crate::writer::Writer;

/// The version found instead of the expected one; a chore reports it in addition to its number.
#[derive(Clone, Default)]
pub(super) struct FoundVersion(Arc<AtomicU64>);

impl FoundVersion {
    fn set(&self, version: Option<u64>) {
        self.0.store(version.unwrap_or(0), Ordering::SeqCst);
    }

    pub(super) fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::SeqCst)).filter(|version| *version > 0)
    }
}

/// Removes a value, and returns how many there were.
pub(super) struct Delete {
    scope: String,
    key: String,
    expected: Expected,
    now: Timestamp,
    found: FoundVersion,
}

impl Delete {
    pub(super) fn new(
        scope: &Scope,
        key: &str,
        expected: Expected,
        now: Timestamp,
    ) -> (Self, FoundVersion) {
        let found = FoundVersion::default();
        let (scope, key) = (scope.to_string(), key.to_owned());
        (Self { scope, key, expected, now, found: found.clone() }, found)
    }
}

#[async_trait]
impl Chore for Delete {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let is_stored = find_stored(connection, &self.scope, &self.key, self.now).await?;
        let version = is_stored.filter(|(_, is_over)| !is_over).map(|(version, _)| version);
        self.found.set(version);
        if version.is_none() || !self.expected.allows(version) {
            return Ok(0);
        }
        remove(connection, &self.scope, &self.key).await
    }
}

/// Removes the values of a scope, from the file too, and returns how many there were.
pub(super) struct Clear(pub(super) Scope);

#[async_trait]
impl Chore for Clear {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let gone = sqlx::query("DELETE FROM state WHERE scope = $1")
            .bind(self.0.to_string())
            .execute(&mut *connection)
            .await?;
        Ok(gone.rows_affected())
    }
}

/// The most values that one transaction removes with a session.
const CLEARED: i64 = 256;

/// Removes the values of a scope in small steps, so that no writer waits for all of them, and returns how many there were.
pub(crate) async fn clear_in_steps(writer: &Writer, scope: &Scope) -> Result<u64, StoreError> {
    let mut removed = 0;
    loop {
        match writer.perform(ClearSome(scope.clone())).await? {
            0 => return Ok(removed),
            some => removed += some,
        }
    }
}

/// Removes some of the values of a scope, and returns how many.
struct ClearSome(Scope);

#[async_trait]
impl Chore for ClearSome {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let gone = sqlx::query(
            "DELETE FROM state WHERE number IN \
             (SELECT number FROM state WHERE scope = $1 ORDER BY key LIMIT $2)",
        )
        .bind(self.0.to_string())
        .bind(CLEARED)
        .execute(connection)
        .await?;
        Ok(gone.rows_affected())
    }
}

/// The number of pages of the word index that one transaction merges.
const MERGED_PAGES: i64 = 32;

/// Removes the words of values that have gone from the index, which holds them until its parts are merged. This goes in
/// small steps, so that no writer waits for the whole index.
pub(crate) async fn merge_words(writer: &Writer) -> Result<(), StoreError> {
    // See <https://www.sqlite.org/fts5.html#the_merge_command>: a negative number begins to merge all parts, and one that
    // changes fewer than two rows has found nothing to merge.
    writer.perform(MergeWords(-MERGED_PAGES)).await?;
    while writer.perform(MergeWords(MERGED_PAGES)).await? >= 2 {}
    Ok(())
}

/// Merges parts of the index of words, and returns how many of its rows changed.
struct MergeWords(i64);

#[async_trait]
impl Chore for MergeWords {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let before = total_changes(connection).await?;
        sqlx::query("INSERT INTO state_words (state_words, rank) VALUES ('merge', $1)")
            .bind(self.0)
            .execute(&mut *connection)
            .await?;
        Ok(to_u64(total_changes(connection).await? - before))
    }
}

async fn total_changes(connection: &mut SqliteConnection) -> Result<i64, JobError> {
    Ok(sqlx::query_scalar("SELECT total_changes()").fetch_one(connection).await?)
}

/// Removes some of the values that have expired, and returns how many.
pub(crate) struct ExpireState(pub(crate) Timestamp);

#[async_trait]
impl Chore for ExpireState {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let gone = sqlx::query(
            "DELETE FROM state WHERE number IN \
             (SELECT number FROM state WHERE expires_at <= $1 LIMIT 256)",
        )
        .bind(self.0.as_millis())
        .execute(connection)
        .await?;
        Ok(gone.rows_affected())
    }
}

/// Returns the number of the row stored under a key, and whether it has expired.
async fn find_stored(
    connection: &mut SqliteConnection,
    scope: &str,
    key: &str,
    now: Timestamp,
) -> Result<Option<(u64, bool)>, JobError> {
    let row = sqlx::query("SELECT number, expires_at FROM state WHERE scope = $1 AND key = $2")
        .bind(scope)
        .bind(key)
        .fetch_optional(connection)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let (number, expires_at): (i64, Option<i64>) =
        (row.try_get("number")?, row.try_get("expires_at")?);
    let is_over = expires_at.is_some_and(|at| at <= now.as_millis());
    Ok(Some((u64::try_from(number).unwrap_or_default(), is_over)))
}

async fn remove(
    connection: &mut SqliteConnection,
    scope: &str,
    key: &str,
) -> Result<u64, JobError> {
    let gone = sqlx::query("DELETE FROM state WHERE scope = $1 AND key = $2")
        .bind(scope)
        .bind(key)
        .execute(connection)
        .await?;
    Ok(gone.rows_affected())
}

#[cfg(test)]
mod tests {
    use layer0::StateStore;
    use layer0::state::StateWrite;

    use super::*;
    use crate::database::Database;

    /// Writes this many values of other scopes into the word index, in transactions of their own.
    struct Fill(u64);

    #[async_trait]
    impl Chore for Fill {
        async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
            let filled = sqlx::query(
                "WITH RECURSIVE numbers (n) AS (SELECT $1 UNION ALL SELECT n + 1 FROM numbers \
                 WHERE n < $1 + 999) INSERT INTO state_words (rowid, place, words) \
                 SELECT n, 'agent a', 'w' || (n * 7919 % 50021) || ' w' || (n * 104729 % 50021) \
                 || ' order number ' || n FROM numbers",
            )
            .bind(i64::try_from(self.0).unwrap())
            .execute(connection)
            .await?;
            Ok(filled.rows_affected())
        }
    }

    /// Spec: S10
    #[tokio::test]
    async fn scope_is_cleared_in_steps() {
        let database = Database::in_memory().await.unwrap();
        let writer = database.for_writing().unwrap();
        let scopes = ["session:a", "session:b"].map(|scope| scope.parse::<Scope>().unwrap());
        for scope in &scopes {
            for number in 0..300 {
                let write =
                    StateWrite::new(scope.clone(), format!("k{number}"), serde_json::json!(1));
                database.state().write(write).await.unwrap();
            }
        }
        assert_eq!(writer.perform(ClearSome(scopes[0].clone())).await.unwrap(), 256);
        assert_eq!(clear_in_steps(writer, &scopes[0]).await.unwrap(), 44);
        assert_eq!(clear_in_steps(writer, &scopes[1]).await.unwrap(), 300);
    }

    /// Spec: D9, S10. Each step is a transaction, and other writers are served between two of them. The last step removes
    /// the parts that were merged.
    #[tokio::test]
    async fn words_are_merged_in_small_steps() {
        let database = Database::in_memory().await.unwrap();
        let writer = database.for_writing().unwrap();
        for thousand in 0..60 {
            writer.perform(Fill(thousand * 1_000 + 1)).await.unwrap();
        }
        let mut steps = vec![writer.perform(MergeWords(-MERGED_PAGES)).await.unwrap()];
        while steps.last().is_some_and(|rows| *rows >= 2) {
            steps.push(writer.perform(MergeWords(MERGED_PAGES)).await.unwrap());
        }
        let (largest, all) = (steps.iter().max().unwrap(), steps.iter().sum::<u64>());
        assert!(all > 2_000 && largest * 3 <= all, "{steps:?}");
    }
}
