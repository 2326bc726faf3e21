use std::fmt;
use std::time::Duration;

use backstop_retention::StoreRetention;

use crate::connect::{self, Connect};
use crate::open_error::{OpenError, Place};
use crate::url;

/// How a [`Database`](crate::Database) is opened.
///
/// The URL is `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with `?sslmode=verify-full&sslrootcert=FILE` and
/// the other parameters of libpq that have a place there; one that is not known is refused. What it leaves out is
/// taken from `PGHOST`, `PGPORT`, `PGUSER`, `PGPASSWORD`, `PGDATABASE`, `PGSSLMODE`, `PGSSLROOTCERT` and the file that
/// `PGPASSFILE` names, or `~/.pgpass`. Its password is never printed.
///
/// ```
/// use std::time::Duration;
///
/// use backstop_store_postgres::Options;
///
/// let options = Options::new("postgres://backstop:secret@db.example/agents?sslmode=verify-full")?
///     .connections(16)
///     .patience(Duration::from_secs(60));
/// assert!(!format!("{options:?}").contains("secret"));
/// # Ok::<(), backstop_store_postgres::OpenError>(())
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) connect: Connect,
    pub(crate) retention: StoreRetention,
    pub(crate) patience: Duration,
    pub(crate) connections: u32,
    pub(crate) lease: Duration,
}

impl Options {
    /// How long the lease of a process lasts unless told otherwise; it is renewed each third.
    pub const LEASE: Duration = connect::LEASE;
    /// How long an append is tried again while the server is away, unless told otherwise.
    pub const PATIENCE: Duration = Duration::from_secs(5);
    /// How many connections read and write beside those for appends, the lease, notifications and pruning in the
    /// background, unless told otherwise.
    pub const CONNECTIONS: u32 = 8;

    /// How many connections a process has beside those that read and write: two for appends, one for its lease
    /// and, while it prunes, one for that.
    const OWN_CONNECTIONS: u32 = 4;

    /// Reads a URL.
    ///
    /// # Errors
    ///
    /// [`OpenError::InvalidUrl`].
    pub fn new(url: &str) -> Result<Self, OpenError> {
        Ok(Self {
            connect: url::read(url)?,
            retention: StoreRetention::default(),
            patience: Self::PATIENCE,
            connections: Self::CONNECTIONS,
            lease: Self::LEASE,
        })
    }

    /// Keeps what is in the database as `retention` says.
    #[must_use]
    pub fn retention(mut self, retention: impl Into<StoreRetention>) -> Self {
        self.retention = retention.into();
        self
    }

    /// Tries appends again for so long while the server is away.
    #[must_use]
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Uses at most so many connections beside those for appends, the lease, notifications and pruning in the
    /// background; at least one.
    #[must_use]
    pub const fn connections(mut self, connections: u32) -> Self {
        self.connections = if connections == 0 { 1 } else { connections };
        self
    }

    /// Returns how many connections of the server one process uses at most, while the server is there. A pooler
    /// in session mode holds each for as long as the process has it.
    ///
    /// ```
    /// use backstop_store_postgres::Options;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let options = Options::new("postgres://db/agents")?;
    /// assert_eq!((options.most_connections(), options.connections(16).most_connections()), (12, 20));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn most_connections(&self) -> u32 {
        self.connections.saturating_add(Self::OWN_CONNECTIONS)
    }

    /// Lets the lease of this process last so long, at least a second: others wait for its end before they take
    /// over the runs of a process that was stopped. It is renewed each third.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(Duration::from_secs(1));
        self
    }

    pub(crate) fn place(&self) -> Place {
        let options = self.connect.options();
        let server = match options.get_socket() {
            Some(folder) => folder.display().to_string(),
            None => format!("{}:{}", options.get_host(), options.get_port()),
        };
        let user = options.get_username().to_owned();
        let database = options.get_database().unwrap_or(&user).to_owned();
        Place { server, database, user, files: self.connect.files().to_vec() }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { server, database, user, .. } = self.place();
        f.debug_struct("Options")
            .field("server", &server)
            .field("database", &database)
            .field("user", &user)
            .field("retention", &self.retention)
            .field("patience", &self.patience)
            .field("connections", &self.connections)
            .field("lease", &self.lease)
            .finish()
    }
}
