use std::fmt;
use std::time::Duration;

use backstop_retention::StoreRetention;

use crate::connect::{self, Connect};
use crate::open_error::{DatabaseTarget, OpenError};
use crate::url;

/// Options for opening a [`Database`](crate::Database).
///
/// The URL is `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with `?sslmode=verify-full&sslrootcert=FILE` and other
/// parameters of libpq; an unknown parameter is refused. Missing parts are taken from `PGHOST`, `PGPORT`, `PGUSER`,
/// `PGPASSWORD`, `PGDATABASE`, `PGSSLMODE`, `PGSSLROOTCERT` and the file that `PGPASSFILE` names, or `~/.pgpass`. The
/// password is never printed.
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
    /// Default length of a process's lease; it is renewed after each third.
    pub const LEASE: Duration = connect::LEASE;
    /// Default time for which an append is retried while the server is unreachable.
    pub const PATIENCE: Duration = Duration::from_secs(5);
    /// Default number of connections for reads and writes, in addition to those for appends, the lease, notifications
    /// and background pruning.
    pub const CONNECTIONS: u32 = 8;

    /// Number of connections of a process in addition to those for reads and writes: two for appends, one for its lease
    /// and one for pruning while it prunes.
    const OWN_CONNECTIONS: u32 = 4;

    /// Parses a URL.
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

    /// Sets the retention of stored data.
    #[must_use]
    pub fn retention(mut self, retention: impl Into<StoreRetention>) -> Self {
        self.retention = retention.into();
        self
    }

    /// Sets the time for which appends are retried while the server is unreachable.
    #[must_use]
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets the maximum number of connections for reads and writes, in addition to those for appends, the lease,
    /// notifications and background pruning; at least one.
    #[must_use]
    pub const fn connections(mut self, connections: u32) -> Self {
        self.connections = if connections == 0 { 1 } else { connections };
        self
    }

    /// Returns the maximum number of server connections of one process, while the server is reachable. A pooler in
    /// session mode reserves each one for as long as the process has it.
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

    /// Sets the length of this process's lease, at least a second: others wait for its end before they take over the
    /// runs of a process that was stopped. It is renewed after each third.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(Duration::from_secs(1));
        self
    }

    pub(crate) fn place(&self) -> DatabaseTarget {
        let options = self.connect.options();
        let server = match options.get_socket() {
            Some(folder) => folder.display().to_string(),
            None => format!("{}:{}", options.get_host(), options.get_port()),
        };
        let user = options.get_username().to_owned();
        let database = options.get_database().unwrap_or(&user).to_owned();
        DatabaseTarget { server, database, user, files: self.connect.files().to_vec() }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DatabaseTarget { server, database, user, .. } = self.place();
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
