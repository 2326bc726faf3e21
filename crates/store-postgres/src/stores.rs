//! The stores of a database.

use std::sync::Arc;

use backstop_error_store::{ErrorStore, ResultStore, Store};
use backstop_event_log::EventLog;
use layer0::StateStore;

use crate::database::Database;
use crate::errors::PostgresErrorStore;
use crate::log::PostgresLog;
use crate::results::PostgresResultStore;
use crate::state::PostgresStateStore;

impl Database {
    /// Returns the event log in this database.
    #[must_use]
    pub fn log(&self) -> PostgresLog {
        PostgresLog::new(self.clone())
    }

    /// Returns the error store in this database.
    #[must_use]
    pub fn errors(&self) -> PostgresErrorStore {
        PostgresErrorStore::new(self.clone())
    }

    /// Returns the store of large results in this database.
    #[must_use]
    pub fn results(&self) -> PostgresResultStore {
        PostgresResultStore::new(self.clone())
    }

    /// Returns the state store in this database.
    #[must_use]
    pub fn state(&self) -> PostgresStateStore {
        PostgresStateStore::new(self.clone())
    }
}

impl Store for Database {
    fn log(&self) -> Arc<dyn EventLog> {
        Arc::new(Self::log(self))
    }

    fn errors(&self) -> Arc<dyn ErrorStore> {
        Arc::new(Self::errors(self))
    }

    fn results(&self) -> Arc<dyn ResultStore> {
        Arc::new(Self::results(self))
    }

    fn state(&self) -> Option<Arc<dyn StateStore>> {
        Some(Arc::new(Self::state(self)))
    }
}
