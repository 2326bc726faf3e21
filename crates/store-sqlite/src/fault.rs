//! Mapping of SQLite's errors to those of the stores.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use backstop_error_store::StoreError;
use backstop_event_log::LogError;
use layer0::code;
use layer0::error::BoxError;
use layer0::failure::{Effect, Facts, Failure};
use thiserror::Error;

/// Error of a database that could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The structure of the file is damaged; [`Database::find_damage`](crate::Database::find_damage) names the place.
    ///
    /// Retry: never. Effect: none.
    #[error("database `{}` is damaged", path.display())]
    #[non_exhaustive]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The error of SQLite.
        source: BoxError,
    },
    /// The database belongs to another program; it was not changed.
    ///
    /// Retry: never. Effect: none.
    #[error("`{}` is a database of another program", .0.display())]
    Foreign(PathBuf),
    /// There is no room on the disk for the files next to the database, or they may not become larger.
    ///
    /// Retry: never. Effect: none.
    #[error("no space to open database `{}`", path.display())]
    #[non_exhaustive]
    Full {
        /// The file.
        path: PathBuf,
        /// The error of SQLite.
        source: BoxError,
    },
    /// Another process held the lock of the file for longer than the wait.
    ///
    /// Retry: with backoff. Effect: none.
    #[error("database `{}` is locked", path.display())]
    #[non_exhaustive]
    Locked {
        /// The file.
        path: PathBuf,
        /// The error of SQLite.
        source: BoxError,
    },
    /// The file does not exist or is empty, and its write-ahead log was left behind: SQLite would delete it, with the
    /// last events of the file that it belongs to.
    ///
    /// Retry: never. Effect: none.
    #[error("there is a write-ahead log at `{}`, without its database", .0.display())]
    LogLeft(PathBuf),
    /// The file does not exist, and was opened for reading.
    ///
    /// Retry: never. Effect: none.
    #[error("no database at `{}`", .0.display())]
    Missing(PathBuf),
    /// The file is on a network file system, where SQLite's write-ahead log corrupts;
    /// [`OpenOptions::network_fs`](crate::OpenOptions::network_fs) opens it anyway.
    ///
    /// Retry: never. Effect: none.
    #[error("database `{}` is on a network file system ({file_system})", path.display())]
    #[non_exhaustive]
    NetworkFileSystem {
        /// The file.
        path: PathBuf,
        /// The type of the file system, such as `nfs4`.
        file_system: String,
    },
    /// The file was written by a newer version.
    ///
    /// Retry: never. Effect: none.
    #[error("`{}` has schema version {found}, this version knows up to {known}", path.display())]
    #[non_exhaustive]
    SchemaNewer {
        /// The file.
        path: PathBuf,
        /// The version found.
        found: i64,
        /// The newest version known.
        known: i64,
    },
    /// The file has a second name, under which SQLite would not find its write-ahead log.
    ///
    /// Retry: never. Effect: none.
    #[error("database `{}` has several names: {why}", path.display())]
    #[non_exhaustive]
    SeveralNames {
        /// The file.
        path: PathBuf,
        /// The kind of the other name.
        why: &'static str,
    },
    /// The file could not be opened, created or read as a database.
    ///
    /// Retry: never. Effect: none.
    #[error("cannot open database `{}`", path.display())]
    #[non_exhaustive]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of SQLite.
        source: BoxError,
    },
}

/// Error of a store of an older version that lacks requested data and is opened for reading, which does not migrate it.
///
/// Opening it for writing migrates it. This error is the source of a [`LogError::Failed`].
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} need migration {needed} of the store, which is at {found}")]
#[non_exhaustive]
pub struct OlderSchema {
    /// The requested data.
    pub what: &'static str,
    /// The migration that adds it.
    pub needed: i64,
    /// The last migration in the file.
    pub found: i64,
}

impl Failure for OlderSchema {
    fn facts(&self) -> Facts {
        Facts::never(code::STORE_FAILED, Effect::None)
    }
}

impl OpenError {
    pub(crate) fn unreadable(path: &Path, source: impl Into<BoxError>) -> Self {
        Self::Unreadable { path: path.to_owned(), source: source.into() }
    }

    pub(crate) fn network(path: &Path, file_system: String) -> Self {
        Self::NetworkFileSystem { path: path.to_owned(), file_system }
    }

    pub(crate) fn several_names(path: &Path, why: &'static str) -> Self {
        Self::SeveralNames { path: path.to_owned(), why }
    }
}

/// Returns the error of a database that could not be opened.
pub(crate) fn opening(path: &Path, error: sqlx::Error) -> OpenError {
    let path = path.to_owned();
    let is_damaged = primary_code(&error) == Some(SQLITE_CORRUPT);
    match Fault::from(error) {
        Fault::Locked(source) => OpenError::Locked { path, source },
        Fault::Full(source) => OpenError::Full { path, source },
        Fault::Failed(source) if is_damaged => OpenError::Damaged { path, source },
        Fault::Failed(source) => OpenError::Unreadable { path, source },
        Fault::Closed => OpenError::Unreadable { path, source: "it is closed".into() },
    }
}

impl Failure for OpenError {
    fn facts(&self) -> Facts {
        match self {
            Self::Damaged { .. }
            | Self::Foreign(_)
            | Self::LogLeft(_)
            | Self::Missing(_)
            | Self::NetworkFileSystem { .. }
            | Self::SeveralNames { .. }
            | Self::Unreadable { .. } => Facts::never(code::STORE_FAILED, Effect::None),
            Self::Full { .. } => Facts::never(code::STORE_FULL, Effect::None),
            Self::Locked { .. } => Facts::backoff(code::STORE_LOCKED, Effect::None),
            Self::SchemaNewer { .. } => Facts::never(code::LOG_SCHEMA_NEWER, Effect::None),
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        let hint = match self {
            Self::Damaged { .. } => {
                "restore a backup; if this is one, the `-wal` and `-shm` files next to it belonged to another file: \
                 restore it again into an empty folder"
            }
            Self::Foreign(_) => "give another file: this one is left as it is",
            Self::LogLeft(_) => {
                "put the database back next to it: it has the last events; to begin a new database, move the log to \
                 another folder"
            }
            Self::Missing(_) => {
                "check the path; only a store that is opened for writing is created"
            }
            Self::Unreadable { .. } => {
                "it has to be a file that Backstop made and that you may read; to write to it, you have to be allowed \
                 to write to its folder too"
            }
            Self::Full { .. }
            | Self::Locked { .. }
            | Self::NetworkFileSystem { .. }
            | Self::SchemaNewer { .. }
            | Self::SeveralNames { .. } => return None,
        };
        Some(hint.into())
    }
}

/// The classes of errors that both stores distinguish.
pub(crate) enum Fault {
    Closed,
    Failed(BoxError),
    Full(BoxError),
    Locked(BoxError),
}

/// SQLite's primary result codes, <https://www.sqlite.org/rescode.html>.
const SQLITE_BUSY: u32 = 5;
const SQLITE_LOCKED: u32 = 6;
const SQLITE_IOERR: u32 = 10;
const SQLITE_CORRUPT: u32 = 11;
const SQLITE_FULL: u32 = 13;
const SQLITE_CONSTRAINT_TRIGGER: u32 = 19 | 7 << 8;

impl Fault {
    /// Returns whether one of our triggers refused the statement.
    pub(crate) fn is_refused(error: &sqlx::Error) -> bool {
        extended_code(error) == Some(SQLITE_CONSTRAINT_TRIGGER)
    }

    /// Returns whether another process holds the lock.
    pub(crate) fn is_locked(error: &sqlx::Error) -> bool {
        matches!(primary_code(error), Some(SQLITE_BUSY | SQLITE_LOCKED))
    }
}

fn primary_code(error: &sqlx::Error) -> Option<u32> {
    // The primary code is the low byte of the extended one.
    extended_code(error).map(|code| code & 0xff)
}

fn extended_code(error: &sqlx::Error) -> Option<u32> {
    error.as_database_error()?.code()?.parse().ok()
}

/// The code if the shared-memory file cannot grow.
const SHMSIZE: u32 = SQLITE_IOERR | 19 << 8;

/// Returns whether a write or a truncation failed.
fn is_growth(error: &sqlx::Error) -> bool {
    const WRITE: u32 = SQLITE_IOERR | 3 << 8;
    const TRUNCATE: u32 = SQLITE_IOERR | 6 << 8;
    matches!(extended_code(error), Some(WRITE | TRUNCATE))
}

/// Returns whether the size of this process's files is limited, for example by `ulimit -f`.
#[cfg(unix)]
fn is_limited() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some()
}

#[cfg(not(unix))]
const fn is_limited() -> bool {
    false
}

/// Returns the error of SQLite without the prefix that the library adds.
pub(crate) fn into_plain_error(error: sqlx::Error) -> BoxError {
    match error {
        sqlx::Error::Database(error) => error.into_error(),
        other => other.into(),
    }
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        if matches!(error, sqlx::Error::PoolClosed) {
            return Self::Closed;
        }
        match primary_code(&error) {
            Some(SQLITE_BUSY | SQLITE_LOCKED) => Self::Locked(into_plain_error(error)),
            Some(SQLITE_FULL) => Self::Full(into_plain_error(error)),
            // SQLite recognises a full disk, but not a limit on the file's size, and not for the shared memory.
            Some(SQLITE_IOERR)
                if extended_code(&error) == Some(SHMSIZE) || is_growth(&error) && is_limited() =>
            {
                Self::Full(into_plain_error(error))
            }
            _ => Self::Failed(into_plain_error(error)),
        }
    }
}

impl From<Fault> for LogError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Closed => Self::Closed,
            Fault::Failed(error) => Self::Failed(error),
            Fault::Full(error) => Self::Full(error),
            Fault::Locked(error) => Self::Locked(error),
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
        }
    }
}
