use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_error_store::StoreError;
use backstop_event_log::{Claims, KnownEnds, LogError, LogKey};
use backstop_retention::{StoreRetention, Upkeep};
use layer0::Timestamp;
use layer0::id::RunId;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use crate::fault::{Fault, OpenError, opening};
use crate::file;
use crate::lookout::Lookout;
use crate::open_options::{Durability, OpenOptions};
use crate::own_files;
use crate::owner::Owner;
use crate::schema;
use crate::store_row::{StoreMark, agree_retention};
use crate::waypoints::Waypoints;
use crate::writer::Writer;

/// Time for which a transaction waits for another process's lock, however many jobs it writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of attempts to switch to the write-ahead log, and the delay between them.
const WAL_TRIES: u32 = 100;
const WAL_WAIT: Duration = Duration::from_millis(20);
/// Page size of a new file, in bytes. An event that does not fit in the rest of a page leaves it empty; most events are
/// short, but not all.
const PAGE_SIZE: u32 = 8_192;
/// Number of concurrent read connections, and one that polls for writes of other processes.
const READERS: u32 = 4 + 1;
/// Path of a database in memory.
const IN_MEMORY: &str = ":memory:";

/// An open database. Clones share it.
#[derive(Clone)]
pub struct Database {
    inner: Arc<DatabaseInner>,
    /// The key that seals new runs.
    key: Option<LogKey>,
}

struct DatabaseInner {
    path: PathBuf,
    readers: SqlitePool,
    /// `None` if the database was opened for reading.
    writer: Option<Writer>,
    claims: Claims,
    known_ends: KnownEnds,
    owner: Arc<Owner>,
    lookout: Lookout,
    mark: StoreMark,
    waypoints: Waypoints,
    upkeep: Upkeep,
    time: fn() -> Timestamp,
    /// The newest runs that started through this handle.
    own_runs: Mutex<VecDeque<RunId>>,
}

/// The retention of a database, and the clock that decides it.
struct Keeps {
    retention: StoreRetention,
    time: fn() -> Timestamp,
}

/// Maximum number of its own runs that a handle remembers.
const OWN_RUNS: usize = 256;

impl Database {
    /// Opens a file for reading and writing; creates the file and its folder if they do not exist.
    ///
    /// # Errors
    ///
    /// [`OpenError::Foreign`], [`OpenError::SchemaNewer`], [`OpenError::SeveralNames`],
    /// [`OpenError::NetworkFileSystem`], [`OpenError::Locked`], [`OpenError::Full`], [`OpenError::Damaged`],
    /// [`OpenError::LogLeft`], [`OpenError::Unreadable`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave an empty database behind.
    pub async fn open(path: impl AsRef<Path>, durability: Durability) -> Result<Self, OpenError> {
        Self::open_with(path, OpenOptions::new().durability(durability)).await
    }

    /// Opens a file as [`Database::open`] does, with a retention.
    ///
    /// # Errors
    ///
    /// As [`Database::open`].
    ///
    /// # Cancel safety
    ///
    /// As [`Database::open`].
    pub async fn open_keeping(
        path: impl AsRef<Path>,
        durability: Durability,
        retention: impl Into<StoreRetention>,
    ) -> Result<Self, OpenError> {
        let options = OpenOptions::new().durability(durability).retention(retention);
        Self::open_with(path, options).await
    }

    /// Opens a file as [`Database::open`] does, with options.
    ///
    /// # Errors
    ///
    /// As [`Database::open`].
    ///
    /// # Cancel safety
    ///
    /// As [`Database::open`].
    pub async fn open_with(
        path: impl AsRef<Path>,
        options: OpenOptions,
    ) -> Result<Self, OpenError> {
        let path = path.as_ref();
        options.check_place(path)?;
        let file = file::prepare(path)?;
        let keeps = Keeps { retention: options.retention, time: options.time };
        let options = sqlite_options().filename(&file).create_if_missing(true).synchronous(
            match options.durability {
                Durability::Normal => SqliteSynchronous::Normal,
                Durability::Full => SqliteSynchronous::Full,
            },
        );
        Self::start(path, Owner::with_file(file), options, keeps).await
    }

    /// Opens a database in memory.
    ///
    /// # Errors
    ///
    /// [`OpenError::Unreadable`].
    pub async fn in_memory() -> Result<Self, OpenError> {
        let path = Path::new(IN_MEMORY);
        let options = SqliteConnectOptions::from_str("sqlite::memory:")
            .map_err(|error| opening(path, error))?;
        let options = options.busy_timeout(BUSY_TIMEOUT);
        let OpenOptions { retention, time, .. } = OpenOptions::new();
        Self::start(path, Owner::in_memory(), options, Keeps { retention, time }).await
    }

    /// Opens an existing file for reading. Creates nothing.
    ///
    /// # Errors
    ///
    /// [`OpenError::Missing`], [`OpenError::Foreign`], [`OpenError::SchemaNewer`],
    /// [`OpenError::NetworkFileSystem`], [`OpenError::Full`], [`OpenError::Damaged`], [`OpenError::Unreadable`].
    pub async fn open_read_only(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_read_only_with(path, OpenOptions::new()).await
    }

    /// Opens a file as [`Database::open_read_only`] does, with options; durability and retention are ignored.
    ///
    /// # Errors
    ///
    /// As [`Database::open_read_only`].
    pub async fn open_read_only_with(
        path: impl AsRef<Path>,
        options: OpenOptions,
    ) -> Result<Self, OpenError> {
        let path = path.as_ref();
        options.check_place(path)?;
        if matches!(path.try_exists(), Ok(false)) {
            return Err(OpenError::Missing(path.to_owned()));
        }
        let file = file::check(path)?;
        // Read-write without writes: the last connection to close then removes the WAL files, which a read-only
        // connection would leave behind.
        let options = sqlite_options().filename(&file).pragma("query_only", "on");
        let (version, options) = match version(path, &options).await {
            // The folder is not writable: without a write-ahead log no process writes there, so that the file does not
            // change.
            Err(OpenError::Unreadable { .. }) if !has_wal(path) => {
                let frozen = options.immutable(true).read_only(true);
                (version(path, &frozen).await?, frozen)
            }
            version => (version?, options),
        };
        if version == 0 {
            return Err(OpenError::Missing(path.to_owned()));
        }
        Ok(Self {
            inner: Arc::new(DatabaseInner {
                path: path.to_owned(),
                readers: readers(options),
                writer: None,
                claims: Claims::default(),
                known_ends: KnownEnds::default(),
                owner: Arc::new(Owner::with_file(file)),
                lookout: Lookout::default(),
                mark: StoreMark::default(),
                waypoints: Waypoints::default(),
                upkeep: Upkeep::default(),
                time: OpenOptions::new().time,
                own_runs: Mutex::default(),
            }),
            key: None,
        })
    }

    async fn start(
        path: &Path,
        owner: Owner,
        options: SqliteConnectOptions,
        keeps: Keeps,
    ) -> Result<Self, OpenError> {
        // Deleted data is overwritten in the file from the first row on, because SQLite copies rows between pages.
        let options = options.pragma("secure_delete", "on");
        let mut connection = connect(path, &options).await?;
        if let Err(error) = prepare(&mut connection, path).await {
            // The last connection to close removes the files next to the database.
            let _ = connection.close().await;
            return Err(error);
        }
        let readers = readers(options.create_if_missing(false).pragma("query_only", "on"));
        owner.record_identity();
        let (claims, owner) = (Claims::default(), Arc::new(owner));
        let lookout = Lookout::default();
        if !owner.is_in_memory() {
            tokio::spawn(Owner::watch_files(Arc::downgrade(&owner), claims.clone()));
        }
        let writer = Some(Writer::start(
            connection,
            readers.connect_options().as_ref().clone().pragma("query_only", "off"),
            claims.clone(),
            Arc::clone(&owner),
            lookout.watches.clone(),
        ));
        let (path, upkeep) = (path.to_owned(), Upkeep::new(keeps.retention));
        let (time, own_runs) = (keeps.time, Mutex::default());
        let inner = Arc::new(DatabaseInner {
            path,
            readers,
            writer,
            claims,
            known_ends: KnownEnds::default(),
            owner,
            lookout,
            mark: StoreMark::default(),
            waypoints: Waypoints::default(),
            upkeep,
            time,
            own_runs,
        });
        let database = Self { inner, key: None };
        database.remember_retention().await;
        Ok(database)
    }

    /// Stores the retention of this process, for processes that set none.
    async fn remember_retention(&self) {
        let (retention, Ok(writer)) = (self.upkeep().retention(), self.for_writing()) else {
            return;
        };
        if !retention.is_default
            && let Err(error) = agree_retention(self.readers(), writer, retention).await
        {
            tracing::warn!(%error, "the retention is not remembered yet; it is tried again later");
        }
    }

    /// Sets the key that seals runs that start through this handle and its clones; runs that were sealed with it can be
    /// read. The key is not stored.
    ///
    /// ```
    /// use backstop_event_log::{Claims, LogKey};
    /// use backstop_store_sqlite::Database;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let key = LogKey::new("32 random bytes").ok_or("the key is empty")?;
    /// let database = Database::in_memory().await?.with_log_key(key);
    /// # database.close().await;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_log_key(mut self, key: LogKey) -> Self {
        self.key = Some(key);
        self
    }

    pub(crate) const fn log_key(&self) -> Option<&LogKey> {
        self.key.as_ref()
    }

    /// Returns the key that a run names, if it names one.
    pub(crate) fn key_named(&self, id: Option<&str>) -> Result<Option<&LogKey>, LogError> {
        let Some(id) = id else { return Ok(None) };
        let key = self.log_key().filter(|key| key.id() == id);
        key.map(Some).ok_or_else(|| LogError::key_missing(id))
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Returns whether this is one of the database's own files or folders, such as its write-ahead log, under any name
    /// and whether or not it exists. No other file may be written there.
    #[must_use]
    pub fn owns(&self, file: &Path) -> bool {
        own_files::is_own_file(self.path(), file)
    }

    /// Returns the number of commits since the database was opened; 0 if it was opened for reading.
    ///
    /// Concurrent jobs share a commit. Background pruning, at most every ten minutes, adds a commit for each 64 removed
    /// rows.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.inner.writer.as_ref().map_or(0, Writer::commits)
    }

    /// Writes the queued jobs and closes the database. Later calls to its stores fail as closed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, closing continues in the background.
    pub async fn close(&self) {
        self.inner.upkeep.stop().await;
        if let Some(writer) = &self.inner.writer {
            writer.close().await;
        }
        self.inner.readers.close().await;
    }

    pub(crate) fn readers(&self) -> &SqlitePool {
        &self.inner.readers
    }

    pub(crate) fn claims(&self) -> &Claims {
        &self.inner.claims
    }

    pub(crate) fn known_ends(&self) -> &KnownEnds {
        &self.inner.known_ends
    }

    pub(crate) fn owner(&self) -> &Arc<Owner> {
        &self.inner.owner
    }

    pub(crate) fn waypoints(&self) -> &Waypoints {
        &self.inner.waypoints
    }

    /// Returns the mark that the cursors of this database carry.
    pub(crate) async fn mark(&self) -> Result<Option<u32>, LogError> {
        self.inner.mark.read(self.readers()).await
    }

    pub(crate) fn lookout(&self) -> &Lookout {
        &self.inner.lookout
    }

    pub(crate) fn is_in_memory(&self) -> bool {
        self.inner.owner.is_in_memory()
    }

    pub(crate) fn upkeep(&self) -> &Upkeep {
        &self.inner.upkeep
    }

    /// Returns the time of this process.
    pub(crate) fn now(&self) -> Timestamp {
        (self.inner.time)()
    }

    /// Remembers a run that started through this handle.
    pub(crate) fn remember_own(&self, run: &RunId) {
        let mut own = self.inner.own_runs.lock().unwrap_or_else(PoisonError::into_inner);
        if own.len() == OWN_RUNS {
            own.pop_front();
        }
        own.push_back(run.clone());
    }

    /// Returns the newest runs that started through this handle.
    pub(crate) fn own_runs(&self) -> Vec<RunId> {
        let own = self.inner.own_runs.lock().unwrap_or_else(PoisonError::into_inner);
        own.iter().cloned().collect()
    }

    /// Returns the writer for a store other than the log.
    pub(crate) fn for_writing(&self) -> Result<&Writer, StoreError> {
        self.writer()
            .ok_or_else(|| StoreError::Failed("the database was opened for reading".into()))
    }

    pub(crate) fn writer(&self) -> Option<&Writer> {
        self.inner.writer.as_ref()
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

fn sqlite_options() -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .page_size(PAGE_SIZE)
        .busy_timeout(BUSY_TIMEOUT)
        .foreign_keys(true)
        .disable_statement_logging()
}

/// Switches to the write-ahead log; the mode is stored in the file. SQLite does not wait for a lock here, so this
/// function does: several processes may open a new file at the same time.
async fn switch_to_wal(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let mut tries = 0..WAL_TRIES;
    loop {
        let mode = sqlx::query("PRAGMA journal_mode = WAL").execute(&mut *connection).await;
        match mode.map(drop).map_err(|error| (Fault::is_locked(&error), error)) {
            Err((true, _)) if tries.next().is_some() => SystemClock.sleep(WAL_WAIT).await,
            result => return result.map_err(|(_, error)| error),
        }
    }
}

/// Migrates a database to this version, and switches it to the write-ahead log.
async fn prepare(connection: &mut SqliteConnection, path: &Path) -> Result<(), OpenError> {
    schema::migrate(connection, path).await?;
    // Only after the check that the file belongs to Backstop.
    switch_to_wal(connection).await.map_err(|error| opening(path, error))
}

/// Reads the schema version of a file.
async fn version(path: &Path, options: &SqliteConnectOptions) -> Result<i64, OpenError> {
    let mut connection = connect(path, options).await?;
    let checked = schema::check(&mut connection, path).await;
    let _ = connection.close().await;
    checked
}

/// Returns whether a write-ahead log has changes that are not in the file yet.
fn has_wal(path: &Path) -> bool {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    std::fs::metadata(wal).is_ok_and(|wal| wal.len() > 0)
}

fn readers(options: SqliteConnectOptions) -> SqlitePool {
    SqlitePoolOptions::new().max_connections(READERS).connect_lazy_with(options)
}

async fn connect(
    path: &Path,
    options: &SqliteConnectOptions,
) -> Result<SqliteConnection, OpenError> {
    options.connect().await.map_err(|error| opening(path, error))
}
