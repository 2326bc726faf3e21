//! Damage of a file.

use backstop_event_log::LogError;

use crate::database::Database;
use crate::fault::Fault;

impl Database {
    /// Checks the structure of the whole file with SQLite's `quick_check`, and returns the first problem; `None` if
    /// there is none. Reads every page, so that it takes time in proportion to the size of the file.
    ///
    /// # Errors
    ///
    /// [`LogError::Locked`], [`LogError::Closed`], and [`LogError::Failed`] if the file is too damaged to be checked.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn find_damage(&self) -> Result<Option<String>, LogError> {
        let found: String = sqlx::query_scalar("PRAGMA quick_check(1)")
            .fetch_one(self.readers())
            .await
            .map_err(Fault::from)?;
        Ok((found != "ok").then_some(found))
    }
}
