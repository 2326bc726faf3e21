//! A store that a command has opened, of either back end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use backstop_error_store::{ErrorStore, ResultStore, Store, StoreError};
use backstop_event_log::{EventLog, LogError, LogKey, RunState, StartKeys};
use backstop_redact::Redactor;
use backstop_retention::{
    Forgotten, Fork, RemoveError, Removed, plan_delete, plan_forget, plan_prune,
};
use backstop_store_postgres::StrandedRun;
use backstop_store_sqlite::{BackupError, Vacuumed};
use layer0::id::{RunId, SessionId};
use layer0::{StateStore, Timestamp};

use crate::exit::CliError;
use crate::secrets::build_process_redactor;

/// An open store. Clones share it.
#[derive(Debug, Clone)]
pub(crate) enum AnyDatabase {
    Postgres(backstop_store_postgres::Database),
    Sqlite(backstop_store_sqlite::Database),
}

/// Evaluates an expression with the database of either back end.
macro_rules! of_either {
    ($self:expr, $database:ident => $done:expr) => {
        match $self {
            AnyDatabase::Postgres($database) => $done,
            AnyDatabase::Sqlite($database) => $done,
        }
    };
}

impl AnyDatabase {
    pub(crate) fn with_log_key(self, key: LogKey) -> Self {
        match self {
            Self::Postgres(database) => Self::Postgres(database.with_log_key(key)),
            Self::Sqlite(database) => Self::Sqlite(database.with_log_key(key)),
        }
    }

    pub(crate) fn log(&self) -> Arc<dyn EventLog> {
        of_either!(self, database => Arc::new(database.log()))
    }

    pub(crate) fn start_keys(&self) -> Arc<dyn StartKeys> {
        of_either!(self, database => Arc::new(database.log()))
    }

    pub(crate) fn errors(&self) -> Arc<dyn ErrorStore> {
        of_either!(self, database => Arc::new(database.errors()))
    }

    pub(crate) fn results(&self) -> Arc<dyn ResultStore> {
        of_either!(self, database => Arc::new(database.results()))
    }

    pub(crate) fn state(&self) -> Arc<dyn StateStore> {
        self.redacted_state(&build_process_redactor())
    }

    /// Returns the state store, which redacts with this redactor.
    pub(crate) fn redacted_state(&self, redactor: &Redactor) -> Arc<dyn StateStore> {
        of_either!(self, database => Arc::new(database.state().redactor(redactor.clone())))
    }

    /// Returns whether a file belongs to the store.
    pub(crate) fn owns(&self, file: &Path) -> bool {
        match self {
            Self::Postgres(_) => false,
            Self::Sqlite(database) => database.owns(file),
        }
    }

    /// Returns the first problem in the structure of a file; a server checks its own files.
    pub(crate) async fn find_damage(&self) -> Result<Option<String>, LogError> {
        match self {
            Self::Postgres(_) => Ok(None),
            Self::Sqlite(database) => database.find_damage().await,
        }
    }

    /// Returns the open runs that no live worker resumes; none for a file, which has no workers.
    pub(crate) async fn list_stranded(&self) -> Result<Vec<StrandedRun>, LogError> {
        match self {
            Self::Postgres(database) => database.queue().list_stranded().await,
            Self::Sqlite(_) => Ok(Vec::new()),
        }
    }

    /// Returns a queued run whose id begins so; `None` for a file, which has no queue.
    pub(crate) async fn find_queued(&self, begin: &str) -> Result<Option<RunId>, LogError> {
        match self {
            Self::Postgres(database) => Ok(database.queue().find(begin, 1).await?.pop()),
            Self::Sqlite(_) => Ok(None),
        }
    }

    /// Returns the runs whose process died while they were running, each with the time of its last event.
    pub(crate) async fn interrupted_runs(&self) -> Result<BTreeMap<RunId, Timestamp>, LogError> {
        of_either!(self, database => database.interrupted_runs().await)
    }

    pub(crate) async fn prune_runs(
        &self,
        age: Duration,
        states: &[RunState],
        now: Timestamp,
    ) -> Result<Removed, StoreError> {
        of_either!(self, database => database.prune_runs(age, states, now).await)
    }

    /// Returns the runs that pruning would remove.
    pub(crate) async fn plan_prune(
        &self,
        age: Duration,
        states: &[RunState],
        now: Timestamp,
    ) -> Result<Vec<RunId>, StoreError> {
        of_either!(self, database => plan_prune(database, age, states, now).await)
    }

    /// Returns the runs that deleting one would remove.
    pub(crate) async fn plan_delete(&self, run: &RunId) -> Result<Vec<RunId>, RemoveError> {
        of_either!(self, database => plan_delete(database, run).await)
    }

    /// Returns the runs that forgetting a session would remove, and the copies that would stay.
    pub(crate) async fn plan_forget(
        &self,
        session: &SessionId,
        with_forks: bool,
        now: Timestamp,
    ) -> Result<(Vec<RunId>, Vec<Fork>), RemoveError> {
        of_either!(self, database => plan_forget(database, session, with_forks, now).await)
    }

    pub(crate) async fn delete_run(&self, run: &RunId) -> Result<Removed, RemoveError> {
        of_either!(self, database => database.delete_run(run).await)
    }

    pub(crate) async fn forget_session(
        &self,
        session: &SessionId,
        by: &str,
        with_forks: bool,
        now: Timestamp,
    ) -> Result<Forgotten, RemoveError> {
        of_either!(self, database => database.forget_session(session, by, with_forks, now).await)
    }

    /// Copies a file that may be written to meanwhile; a server has its own backups.
    pub(crate) async fn backup(&self, file: &Path) -> Result<Result<u64, BackupError>, CliError> {
        match self {
            Self::Postgres(_) => Err(CliError::usage("a PostgreSQL store is copied by its server")
                .with_hint("run `pg_dump --schema=backstop`, or back up the whole server")),
            Self::Sqlite(database) => Ok(database.backup(file).await),
        }
    }

    /// Returns unused space to the disk; a server does so by itself.
    pub(crate) async fn vacuum(&self) -> Result<Result<Vacuumed, StoreError>, CliError> {
        match self {
            Self::Postgres(_) => Err(CliError::usage("PostgreSQL vacuums its tables by itself")
                .with_hint("to give room back to the disk, run `VACUUM FULL` there")),
            Self::Sqlite(database) => Ok(database.vacuum().await),
        }
    }

    pub(crate) async fn close(&self) {
        of_either!(self, database => database.close().await);
    }
}

impl Store for AnyDatabase {
    fn log(&self) -> Arc<dyn EventLog> {
        Self::log(self)
    }

    fn errors(&self) -> Arc<dyn ErrorStore> {
        Self::errors(self)
    }

    fn results(&self) -> Arc<dyn ResultStore> {
        Self::results(self)
    }

    fn state(&self) -> Option<Arc<dyn StateStore>> {
        Some(Self::state(self))
    }
}
