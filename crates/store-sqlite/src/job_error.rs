//! Why a job of the writer failed.

use backstop_error_store::StoreError;
use backstop_event_log::LogError;

use crate::fault::Fault;

/// What every job is told that waited behind another process's lock.
const LOCKED: &str = "another process holds the lock of the database";

/// Why a job failed inside a transaction.
pub(crate) enum JobError {
    Log(LogError),
    Store(StoreError),
    Database(sqlx::Error),
    /// Another process held the lock for longer than is waited.
    Locked,
}

impl From<LogError> for JobError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl From<JobError> for LogError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Log(error) => error,
            JobError::Store(error) => Self::Failed(error.into()),
            JobError::Database(error) => Fault::from(error).into(),
            JobError::Locked => Self::Locked(LOCKED.into()),
        }
    }
}

impl From<JobError> for StoreError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Store(error) => error,
            JobError::Log(error) => Self::Failed(error.into()),
            JobError::Database(error) => Fault::from(error).into(),
            JobError::Locked => Self::Locked(LOCKED.into()),
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
            Self::Log(_) | Self::Store(_) => false,
        }
    }
}
