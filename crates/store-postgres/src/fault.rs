//! Mapping of PostgreSQL's errors to those of the stores.

use std::borrow::Cow;
use std::io;

use backstop_error_store::StoreError;
use backstop_event_log::LogError;
use layer0::error::BoxError;
use thiserror::Error;

/// The classes of errors that the stores distinguish.
#[derive(Debug)]
pub(crate) enum Fault {
    Closed,
    Failed(BoxError),
    Full(BoxError),
    /// A conflict with another transaction; a retry helps.
    Locked(BoxError),
    /// The data exceeds a limit of the server.
    TooLarge(BoxError),
    /// The server cannot be reached, is starting or is shutting down.
    Unreachable(BoxError),
}

/// Message for callers whose work was not answered.
pub(crate) const LOST: &str =
    "the task that writes to the database is gone, and what it was given with it";

/// SQLSTATE codes, <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
mod state {
    pub(super) const DISK_FULL: &str = "53100";
    /// A row of an index, a column or a statement is too long.
    pub(super) const PROGRAM_LIMIT_EXCEEDED: &str = "54000";
    pub(super) const SERIALIZATION_FAILURE: &str = "40001";
    pub(super) const DEADLOCK_DETECTED: &str = "40P01";
    pub(super) const LOCK_NOT_AVAILABLE: &str = "55P03";
    pub(super) const QUERY_CANCELED: &str = "57014";
    /// `admin_shutdown`, `crash_shutdown`, `cannot_connect_now`, `database_dropped`.
    pub(super) const OPERATOR_INTERVENTION: &str = "57P";
    pub(super) const CONNECTION_EXCEPTION: &str = "08";
    /// The client of an open transaction was idle for too long, and the server closed its connection.
    pub(super) const IDLE_IN_TRANSACTION: &str = "25P03";
    pub(super) const TOO_MANY_CONNECTIONS: &str = "53300";
    /// A server that became a replica, or is set to read-only.
    pub(super) const READ_ONLY: &str = "25006";
}

/// Returns the SQLSTATE of an error, if the server sent one.
pub(crate) fn sqlstate(error: &sqlx::Error) -> Option<Cow<'_, str>> {
    error.as_database_error()?.code()
}

/// The answer to a commit was lost: the transaction may have been committed.
#[derive(Debug, Error)]
#[error("the server has not answered whether it committed")]
pub(crate) struct UnansweredCommit(#[source] BoxError);

impl Fault {
    /// Returns the fault of a failed commit. If the server did not answer or shut down, the commit may have happened.
    pub(crate) fn at_commit(error: sqlx::Error) -> Self {
        match Self::from(error) {
            Self::Unreachable(source) => Self::Unreachable(UnansweredCommit(source).into()),
            fault => fault,
        }
    }

    pub(crate) fn from_other(error: impl Into<BoxError>) -> Self {
        Self::Failed(error.into())
    }
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        if let Some(code) = sqlstate(&error) {
            let code = code.into_owned();
            let said = into_plain_error(error);
            return match code.as_str() {
                state::DISK_FULL => Self::Full(said),
                state::PROGRAM_LIMIT_EXCEEDED => Self::TooLarge(said),
                state::SERIALIZATION_FAILURE
                | state::DEADLOCK_DETECTED
                | state::LOCK_NOT_AVAILABLE
                | state::QUERY_CANCELED => Self::Locked(said),
                state::TOO_MANY_CONNECTIONS | state::READ_ONLY | state::IDLE_IN_TRANSACTION => {
                    Self::Unreachable(said)
                }
                code if code.starts_with(state::OPERATOR_INTERVENTION)
                    || code.starts_with(state::CONNECTION_EXCEPTION) =>
                {
                    Self::Unreachable(said)
                }
                _ => Self::Failed(said),
            };
        }
        match error {
            sqlx::Error::PoolClosed => Self::Closed,
            sqlx::Error::Io(error) if error.kind() == io::ErrorKind::StorageFull => {
                Self::Full(error.into())
            }
            sqlx::Error::Io(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::Protocol(_)
            | sqlx::Error::Tls(_) => Self::Unreachable(into_plain_error(error)),
            other => Self::Failed(into_plain_error(other)),
        }
    }
}

/// Returns the error of PostgreSQL without the prefix and the source line that sqlx adds.
pub(crate) fn into_plain_error(error: sqlx::Error) -> BoxError {
    match error {
        sqlx::Error::Database(error) => error.message().into(),
        sqlx::Error::Io(error) => error.into(),
        other => other.into(),
    }
}

impl From<Fault> for LogError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Closed => Self::Closed,
            Fault::Failed(error) => Self::Failed(error),
            Fault::Full(error) => Self::Full(error),
            Fault::Locked(error) => Self::Locked(error),
            Fault::TooLarge(error) => Self::TooLarge(error),
            Fault::Unreachable(error) => Self::Unreachable(error),
        }
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Closed => Self::Closed,
            Fault::Failed(error) => Self::Failed(error),
            Fault::Full(error) => Self::Full(error),
            Fault::Locked(error) => Self::Locked(error),
            Fault::TooLarge(error) => Self::TooLarge(error),
            Fault::Unreachable(error) => Self::Unreachable(error),
        }
    }
}
