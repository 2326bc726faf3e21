//! The row about the database as a whole.

use std::sync::OnceLock;

use backstop_event_log::LogError;
use sqlx::sqlite::SqlitePool;

use crate::fault::Fault;
use crate::rows::unsigned;

/// The mark of a database, once it was read. It never changes.
#[derive(Debug, Default)]
pub(crate) struct StoreMark(OnceLock<u32>);

impl StoreMark {
    /// Returns the mark; `None` for a file of an older version, which a reader leaves as it is.
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
    Ok(erasures.map(unsigned))
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
