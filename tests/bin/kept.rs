//! Where the records are kept: in an SQLite file, or in a PostgreSQL database.

use std::sync::Arc;

use backstop::error_store::Store;
use backstop::{Database, Durability, ErrorStore, EventLog, PostgresDatabase, ResultStore};

use crate::Failed;

/// An open database.
#[derive(Clone)]
pub(crate) enum Kept {
    File(Database),
    Server(PostgresDatabase),
}

impl Kept {
    /// Opens what a path or a URL names.
    pub(crate) async fn open(place: &str) -> Result<Self, Failed> {
        Ok(match place.starts_with("postgres://") {
            true => Self::Server(PostgresDatabase::connect(place).await?),
            false => Self::File(Database::open(place, Durability::Normal).await?),
        })
    }

    pub(crate) fn log(&self) -> Arc<dyn EventLog> {
        Store::log(self)
    }

    pub(crate) async fn close(&self) {
        match self {
            Self::File(database) => database.close().await,
            Self::Server(database) => database.close().await,
        }
    }
}

impl Store for Kept {
    fn log(&self) -> Arc<dyn EventLog> {
        match self {
            Self::File(database) => Arc::new(database.log()),
            Self::Server(database) => Arc::new(database.log()),
        }
    }

    fn errors(&self) -> Arc<dyn ErrorStore> {
        match self {
            Self::File(database) => Arc::new(database.errors()),
            Self::Server(database) => Arc::new(database.errors()),
        }
    }

    fn results(&self) -> Arc<dyn ResultStore> {
        match self {
            Self::File(database) => Arc::new(database.results()),
            Self::Server(database) => Arc::new(database.results()),
        }
    }
}
