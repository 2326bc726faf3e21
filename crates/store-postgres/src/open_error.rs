use std::io::ErrorKind;

use layer0::code;
use layer0::error::BoxError;
use layer0::failure::{Effect, Facts, Failure};
use std::borrow::Cow;
use thiserror::Error;

use crate::connect::KeyFile;
use crate::fault::{Fault, into_plain_error, sqlstate};

/// Error of a database that could not be opened.
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
        /// The error of the server.
        source: BoxError,
    },
    /// The schema `backstop` of the database belongs to another program; it was not changed.
    ///
    /// Retry: never. Effect: none.
    #[error("schema `backstop` of database `{0}` is another program's")]
    Foreign(String),
    /// The URL of the database cannot be parsed. It is not repeated, because it may contain a password.
    ///
    /// Retry: never. Effect: none.
    #[error("invalid URL of a PostgreSQL database")]
    InvalidUrl(#[source] BoxError),
    /// Another process held a lock for longer than the wait.
    ///
    /// Retry: with backoff. Effect: none.
    #[error("database `{database}` is locked")]
    #[non_exhaustive]
    Locked {
        /// The database.
        database: String,
        /// The error of the server.
        source: BoxError,
    },
    /// The database has no Backstop schema, and was opened for reading, or the user may not create one.
    ///
    /// Retry: never. Effect: none.
    #[error("database `{0}` has no schema `backstop`")]
    Missing(String),
    /// The database does not exist on the server.
    ///
    /// Retry: never. Effect: none.
    #[error("there is no database `{0}`")]
    NoDatabase(String),
    /// The user lacks a permission that opening the database needs.
    ///
    /// Retry: never. Effect: none.
    #[error("user `{user}` has not the rights that are needed in database `{database}`")]
    #[non_exhaustive]
    NotAllowed {
        /// The user.
        user: String,
        /// The database.
        database: String,
        /// The error of the server.
        source: BoxError,
    },
    /// The schema has an older version, and this user may not migrate it.
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
    /// The schema was written by a newer version.
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
    /// The server cannot be trusted: its certificate is not from the given authority or not for this name, or the
    /// server does not support TLS; or a certificate file cannot be read. No password was sent.
    ///
    /// Retry: never. Effect: none.
    #[error("no connection by TLS to `{server}` that can be trusted")]
    #[non_exhaustive]
    Untrusted {
        /// Host and port, or the folder of its socket.
        server: String,
        /// The cause.
        source: BoxError,
    },
    /// The server cannot be reached.
    ///
    /// Retry: with backoff. Effect: none.
    #[error("cannot reach the PostgreSQL server at `{server}`")]
    #[non_exhaustive]
    Unreachable {
        /// Host and port, or the folder of its socket.
        server: String,
        /// The cause.
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
        /// The error of the server, or another cause.
        source: BoxError,
    },
}

/// Known facts about a database before a connection.
#[derive(Debug, Clone)]
pub(crate) struct DatabaseTarget {
    pub(crate) server: String,
    pub(crate) database: String,
    pub(crate) user: String,
    /// The files that a TLS connection reads.
    pub(crate) files: Vec<KeyFile>,
}

impl DatabaseTarget {
    /// Returns the error of a database that could not be opened.
    pub(crate) fn open_error(&self, error: sqlx::Error) -> OpenError {
        let Self { server, database, user, files } = self.clone();
        if let Some(source) = distrust(&error, &files) {
            return OpenError::Untrusted { server, source };
        }
        match sqlstate(&error).as_deref() {
            Some("28P01" | "28000") => {
                return OpenError::Denied { user, source: into_plain_error(error) };
            }
            Some("3D000") => return OpenError::NoDatabase(database),
            Some("42501") => {
                return OpenError::NotAllowed { user, database, source: into_plain_error(error) };
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

/// Returns the reason why a TLS connection cannot be trusted, if that is the cause.
fn distrust(error: &sqlx::Error, files: &[KeyFile]) -> Option<BoxError> {
    match error {
        sqlx::Error::Tls(why) => Some(why.to_string().into()),
        // A failed handshake is invalid data.
        sqlx::Error::Io(why) if why.kind() == ErrorKind::InvalidData => {
            Some(why.to_string().into())
        }
        sqlx::Error::Io(_) => files.iter().find_map(|KeyFile { name, path }| {
            let why = std::fs::File::open(path).err()?;
            Some(format!("{name} `{}`: {why}", path.display()).into())
        }),
        _ => None,
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
            | Self::Untrusted { .. }
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
                "check user and password: in the URL, in PGPASSWORD, or in ~/.pgpass, which its owner alone may read"
                    .into()
            }
            Self::Foreign(_) => "use another database, or rename that schema".into(),
            Self::InvalidUrl(_) => "write postgres://USER@HOST:PORT/DATABASE?sslmode=verify-full".into(),
            Self::NoDatabase(name) => format!("create it: createdb {name}").into(),
            Self::Missing(_) | Self::SchemaOlder { .. } => {
                "open it once with a role that may create schemas and tables, such as its owner"
                    .into()
            }
            Self::NotAllowed { user, .. } => {
                format!("grant `{user}` the rights that docs/postgres.md lists").into()
            }
            Self::Untrusted { source, .. } => mend_trust(&source.to_string()).into(),
            Self::Unreachable { .. } => {
                "is the server running, and are host and port right? `doctor` says more".into()
            }
            Self::SchemaNewer { .. } => "use the version that wrote it, or a later version".into(),
            Self::Locked { .. } => "end the transaction that holds the lock: see pg_stat_activity".into(),
            Self::Unusable { .. } => return None,
        })
    }
}

/// Returns a hint for fixing a TLS connection that failed for this reason, as rustls and sqlx word it.
fn mend_trust(why: &str) -> &'static str {
    if why.contains("not valid for name") {
        "connect by a name that the certificate of the server is for; `sslmode=verify-ca` does not look at the name"
    } else if why.contains("UnknownIssuer") {
        "name the file, in PEM, of the authority that signed the certificate of the server: sslrootcert=FILE"
    } else if why.contains("does not support TLS") {
        "turn TLS on at the server, `ssl = on`; `sslmode=disable` is for networks that nothing else can read"
    } else {
        "check the certificate of the server, and the files that sslrootcert, sslcert and sslkey name"
    }
}
