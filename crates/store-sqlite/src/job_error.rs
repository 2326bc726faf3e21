//! Errors of the writer's jobs.

use std::path::PathBuf;

use backstop_error_store::StoreError;
use backstop_event_log::LogError;

use crate::fault::Fault;

/// Message for every job that waited behind another process's lock.
const LOCKED: &str = "another process holds the lock of the database";

/// Message for callers whose jobs were not answered.
const LOST: &str = "the task that writes to the database is gone, and what it was given with it";

/// Error of a job.
pub(crate) enum JobError {
    /// The database was closed.
    Closed,
    Log(LogError),
    Store(StoreError),
    Database(sqlx::Error),
    /// Another process held the lock for longer than the timeout.
    Locked,
    /// The file of the database is no longer at its path.
    Moved(PathBuf),
    /// The writer task panicked, or its runtime was shut down.
    Lost,
}

impl From<LogError> for JobError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl From<JobError> for LogError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Closed => Self::Closed,
            JobError::Log(error) => error,
            JobError::Store(error) => error.into(),
            JobError::Database(error) => Fault::from(error).into(),
            JobError::Locked => Self::Locked(LOCKED.into()),
            JobError::Lost => Self::Failed(LOST.into()),
            JobError::Moved(path) => Self::StoreLost(path),
        }
    }
}

impl From<JobError> for StoreError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Closed => Self::Closed,
            JobError::Store(error) => error,
            JobError::Log(error) => error.into(),
            JobError::Database(error) => Fault::from(error).into(),
            JobError::Locked => Self::Locked(LOCKED.into()),
            JobError::Lost => Self::Failed(LOST.into()),
            JobError::Moved(path) => Self::Lost(path),
        }
    }
}

impl From<sqlx::Error> for JobError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl JobError {
    pub(crate) fn no_answer() -> Self {
        Self::Store(StoreError::Failed("an error was stored without an answer".into()))
    }

    pub(crate) fn is_locked(&self) -> bool {
        match self {
            Self::Database(error) => Fault::is_locked(error),
            Self::Locked => true,
            Self::Closed | Self::Log(_) | Self::Lost | Self::Moved(_) | Self::Store(_) => false,
        }
    }
}
