use layer0::code;
use layer0::error::BoxError;
use layer0::failure::{Effect, Facts, Failure};
use std::borrow::Cow;
use thiserror::Error;

use crate::fault::{Fault, said, state_of};

/// Says why a database could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The server refused the user or the password.
    ///
    /// Retry: never. Effect: none.
    #[error("the server does not let `{user}` in")]
    #[non_exhaustive]
    Denied {
        /// The user.
        user: String,
        /// What the server said.
        source: BoxError,
    },
    /// The schema `backstop` of the database is another program's; it was left alone.
    ///
    /// Retry: never. Effect: none.
    #[error("schema `backstop` of database `{0}` is another program's")]
    Foreign(String),
    /// The URL of the database cannot be read. It is not repeated, because it may hold a password.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid URL of a PostgreSQL database")]
    InvalidUrl(#[source] BoxError),
    /// Another process held a lock for longer than is waited.
    ///
    /// Retry: with backoff. Effect: none.
    #[error("database `{database}` is locked")]
    #[non_exhaustive]
    Locked {
        /// The database.
        database: String,
        /// What the server said.
        source: BoxError,
    },
    /// The database has no schema of ours, and was to be read, or the user may not make one.
    ///
    /// Retry: never. Effect: none.
    #[error("database `{0}` has no schema `backstop`")]
    Missing(String),
    /// The server has no such database.
    ///
    /// Retry: never. Effect: none.
    #[error("there is no database `{0}`")]
    NoDatabase(String),
    /// The user may not do what is needed to open the database.
    ///
    /// Retry: never. Effect: none.
    #[error("user `{user}` has not the rights that are needed in database `{database}`")]
    #[non_exhaustive]
    NotAllowed {
        /// The user.
        user: String,
        /// The database.
        database: String,
        /// What the server said.
        source: BoxError,
    },
    /// The schema is of an older version, and this user may not bring it to this one.
    ///
    /// Retry: never. Effect: none.
    #[error("database `{database}` has schema version {found}, this version needs {needed}")]
    #[non_exhaustive]
    SchemaOlder {
        /// The database.
        database: String,
        /// The version found.
        found: i64,
        /// The version needed.
        needed: i64,
    },
    /// It was written by a newer version.
    ///
    /// Retry: never. Effect: none.
    #[error("database `{database}` has schema version {found}, this version knows up to {known}")]
    #[non_exhaustive]
    SchemaNewer {
        /// The database.
        database: String,
        /// The version found.
        found: i64,
        /// The newest version known.
        known: i64,
    },
    /// The server cannot be reached.
    ///
    /// Retry: with backoff. Effect: none.
    #[error("cannot reach the PostgreSQL server at `{server}`")]
    #[non_exhaustive]
    Unreachable {
        /// Host and port, or the folder of its socket.
        server: String,
        /// Why not.
        source: BoxError,
    },
    /// The database cannot be used.
    ///
    /// Retry: never. Effect: none.
    #[error("cannot use database `{database}`")]
    #[non_exhaustive]
    Unusable {
        /// The database.
        database: String,
        /// What the server said, or why.
        source: BoxError,
    },
}

/// What is known of the place before it is connected to.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) server: String,
    pub(crate) database: String,
    pub(crate) user: String,
}

impl Place {
    /// Makes the error of a database that could not be opened.
    pub(crate) fn refused(&self, error: sqlx::Error) -> OpenError {
        let Self { server, database, user } = self.clone();
        match state_of(&error).as_deref() {
            Some("28P01" | "28000") => return OpenError::Denied { user, source: said(error) },
            Some("3D000") => return OpenError::NoDatabase(database),
            Some("42501") => {
                return OpenError::NotAllowed { user, database, source: said(error) };
            }
            _ => {}
        }
        match Fault::from(error) {
            Fault::Locked(source) => OpenError::Locked { database, source },
            Fault::Unreachable(source) => OpenError::Unreachable { server, source },
            Fault::Closed => OpenError::unusable(database, "it was closed"),
            Fault::Failed(source) | Fault::Full(source) | Fault::TooLarge(source) => {
                OpenError::Unusable { database, source }
            }
        }
    }
}

impl OpenError {
    pub(crate) fn unusable(database: String, why: impl Into<BoxError>) -> Self {
        Self::Unusable { database, source: why.into() }
    }
}

impl Failure for OpenError {
    fn facts(&self) -> Facts {
        match self {
            Self::Denied { .. }
            | Self::Foreign(_)
            | Self::Missing(_)
            | Self::NoDatabase(_)
            | Self::NotAllowed { .. }
            | Self::SchemaOlder { .. }
            | Self::Unusable { .. } => Facts::never(code::STORE_FAILED, Effect::None),
            Self::InvalidUrl(_) => Facts::never(code::INPUT_INVALID, Effect::None),
            Self::Locked { .. } => Facts::backoff(code::STORE_LOCKED, Effect::None),
            Self::SchemaNewer { .. } => Facts::never(code::LOG_SCHEMA_NEWER, Effect::None),
            Self::Unreachable { .. } => Facts::backoff(code::STORE_FAILED, Effect::None),
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            Self::Denied { .. } => {
                "check user and password: in the URL, in PGPASSWORD, or in ~/.pgpass".into()
            }
            Self::Foreign(_) => "use another database, or rename that schema".into(),
            Self::InvalidUrl(_) => "write postgres://USER@HOST:PORT/DATABASE".into(),
            Self::NoDatabase(name) => format!("create it: createdb {name}").into(),
            Self::Missing(_) | Self::SchemaOlder { .. } => {
                "open it once with a role that may create schemas and tables, such as its owner"
                    .into()
            }
            Self::NotAllowed { user, .. } => {
                format!("grant `{user}` the rights that docs/postgres.md lists").into()
            }
            Self::Unreachable { .. } => {
                "is the server running, and are host and port right? `doctor` says more".into()
            }
            Self::Locked { .. } | Self::SchemaNewer { .. } | Self::Unusable { .. } => return None,
        })
    }
}
