//! The stores of a database.

use crate::database::Database;
use crate::log::PostgresLog;

impl Database {
    /// Returns the event log in this database.
    #[must_use]
    pub fn log(&self) -> PostgresLog {
        PostgresLog::new(self.clone())
    }
}
