//! The row about the database as a whole.

use std::sync::OnceLock;

use async_trait::async_trait;
use backstop_error_store::StoreError;
use backstop_event_log::LogError;
use backstop_retention::StoreRetention;
use sqlx::SqliteConnection;
use sqlx::sqlite::SqlitePool;

use crate::chore::Chore;
use crate::fault::Fault;
use crate::job_error::JobError;
use crate::rows::to_u64;
use crate::writer::Writer;

/// The mark of a database, once read. It never changes.
#[derive(Debug, Default)]
pub(crate) struct StoreMark(OnceLock<u32>);

impl StoreMark {
    /// Returns the mark; `None` for a file of an older version, which is not migrated for reading.
    pub(crate) async fn read(&self, readers: &SqlitePool) -> Result<Option<u32>, LogError> {
        if let Some(mark) = self.0.get() {
            return Ok(Some(*mark));
        }
        let mark = read_column(readers, "SELECT mark FROM store").await?;
        let mark = mark.and_then(|mark| u32::try_from(mark).ok());
        Ok(mark.map(|mark| *self.0.get_or_init(|| mark)))
    }
}

/// Returns the number of erased events and removed runs; `None` for a file of an older version.
pub(crate) async fn count_erasures(readers: &SqlitePool) -> Result<Option<u64>, LogError> {
    let erasures = read_column(readers, "SELECT erasures FROM store").await?;
    Ok(erasures.map(to_u64))
}

/// Stores the retention that this process has set, or returns the stored one.
pub(crate) async fn agree_retention(
    readers: &SqlitePool,
    writer: &Writer,
    own: StoreRetention,
) -> Result<StoreRetention, StoreError> {
    let known: Option<String> = sqlx::query_scalar("SELECT retention FROM store")
        .fetch_one(readers)
        .await
        .map_err(Fault::from)?;
    if let Some(setting) = own.setting().filter(|setting| known.as_ref() != Some(setting)) {
        writer.perform(SetRetention(setting)).await?;
    }
    Ok(own.or_setting(known.as_deref()))
}

struct SetRetention(String);

#[async_trait]
impl Chore for SetRetention {
    async fn perform(&self, connection: &mut SqliteConnection) -> Result<u64, JobError> {
        let set = sqlx::query("UPDATE store SET retention = $1").bind(&self.0);
        Ok(set.execute(connection).await?.rows_affected())
    }
}

async fn read_column(readers: &SqlitePool, query: &'static str) -> Result<Option<i64>, LogError> {
    match sqlx::query_scalar(query).fetch_optional(readers).await {
        Ok(value) => Ok(value),
        Err(error) => match has_table(readers).await? {
            true => Err(Fault::from(error).into()),
            false => Ok(None),
        },
    }
}

async fn has_table(readers: &SqlitePool) -> Result<bool, LogError> {
    let table = sqlx::query("SELECT 1 FROM sqlite_schema WHERE name = 'store'");
    Ok(table.fetch_optional(readers).await.map_err(Fault::from)?.is_some())
}
