use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_error_store::StoreError;
use backstop_event_log::{Claims, KnownEnds, LogError, LogKey};
use backstop_retention::Upkeep;
use sqlx::{Connection, PgConnection};

use crate::connect::Connect;
use crate::current_owner::CurrentOwner;
use crate::liveness::Liveness;
use crate::lookout::Lookout;
use crate::open_error::{DatabaseTarget, OpenError};
use crate::options::Options;
use crate::pool::ConnectionPool;
use crate::schema;
use crate::store_row::agree_retention;
use crate::writer::{Writer, WriterSetup};

/// Time limit for removing the owner's rows from the server.
const LEFT_AFTER: Duration = Duration::from_secs(5);
/// Time that closing waits for the server, in addition to the patience of appends.
const CLOSED_AFTER: Duration = Duration::from_secs(5);

/// An open database. Clones share it.
#[derive(Clone)]
pub struct Database {
    inner: Arc<DatabaseInner>,
    /// The key that seals new runs.
    key: Option<LogKey>,
}

struct DatabaseInner {
    place: DatabaseTarget,
    options: Options,
    pool: ConnectionPool,
    /// `None` if the database was opened for reading.
    writer: Option<Writer>,
    claims: Claims,
    known_ends: KnownEnds,
    owner: Arc<CurrentOwner>,
    liveness: Liveness,
    /// Number of times that queues were searched.
    turns: AtomicUsize,
    lookout: Lookout,
    upkeep: Upkeep,
}

impl Database {
    /// Opens a database for reading and writing, with a URL as in [`Options::new`]; creates the schema, or migrates it
    /// to this version, if necessary.
    ///
    /// # Errors
    ///
    /// Any variant of [`OpenError`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the schema is either migrated or unchanged.
    pub async fn connect(url: &str) -> Result<Self, OpenError> {
        Self::connect_with(Options::new(url)?).await
    }

    /// Opens a database as [`Database::connect`] does.
    ///
    /// # Errors
    ///
    /// Any variant of [`OpenError`] except [`OpenError::InvalidUrl`].
    ///
    /// # Cancel safety
    ///
    /// As [`Database::connect`].
    pub async fn connect_with(options: Options) -> Result<Self, OpenError> {
        let database = Self::open(options, true).await?;
        let retention = database.upkeep().retention();
        if !retention.is_default
            && let Err(error) = agree_retention(database.pool(), retention).await
        {
            tracing::warn!(%error, "the retention is not remembered yet; it is tried again later");
        }
        Ok(database)
    }

    /// Opens a database for reading. Creates and changes nothing.
    ///
    /// # Errors
    ///
    /// Any variant of [`OpenError`] except [`OpenError::InvalidUrl`].
    pub async fn connect_read_only(options: Options) -> Result<Self, OpenError> {
        Self::open(options, false).await
    }

    async fn open(mut options: Options, for_writing: bool) -> Result<Self, OpenError> {
        options.connect.limit_by(options.lease);
        let place = options.place();
        let refused = |error| place.open_error(error);
        // A separate connection reports why it fails; the pool reports only a timeout.
        options.connect.look().await.map_err(refused)?;
        let mut connection = options.connect.connect().await.map_err(refused)?;
        let checked = check_schema(&options.connect, &mut connection, &place, for_writing).await;
        let _ = connection.close().await;
        checked?;
        let pool = ConnectionPool::new(&options.connect, options.connections, options.patience);
        let (claims, lookout) = (Claims::default(), Lookout::default());
        let owner = CurrentOwner::new(options.connect.clone(), options.lease, claims.clone());
        let owner = Arc::new(owner);
        let writer = for_writing.then(|| {
            lookout.tell(&pool);
            Writer::start(WriterSetup {
                connect: options.connect.clone(),
                patience: options.patience,
                claims: claims.clone(),
                owner: Arc::clone(&owner),
                watches: lookout.watches.clone(),
                notify: Arc::clone(&lookout.wrote),
            })
        });
        let upkeep = Upkeep::new(options.retention);
        let (liveness, turns) = (Liveness::default(), AtomicUsize::default());
        let known_ends = KnownEnds::default();
        let inner = DatabaseInner {
            place,
            options,
            pool,
            writer,
            claims,
            known_ends,
            owner,
            liveness,
            turns,
            lookout,
            upkeep,
        };
        Ok(Self { inner: Arc::new(inner), key: None })
    }

    /// Sets the key that seals runs that start through this handle and its clones; runs that were sealed with it can be
    /// read. The key is not stored.
    #[must_use]
    pub fn with_log_key(mut self, key: LogKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Returns the key that a run names, if it names one.
    pub(crate) fn key_named(&self, id: Option<&str>) -> Result<Option<&LogKey>, LogError> {
        let Some(id) = id else { return Ok(None) };
        let key = self.log_key().filter(|key| key.id() == id);
        key.map(Some).ok_or_else(|| LogError::key_missing(id))
    }

    pub(crate) const fn log_key(&self) -> Option<&LogKey> {
        self.key.as_ref()
    }

    /// Returns the maximum number of connections of this process, as [`Options::most_connections`] computes it.
    #[must_use]
    pub fn most_connections(&self) -> u32 {
        self.options().most_connections()
    }

    /// Returns the number of commits of appends since the database was opened; 0 if it was opened for reading.
    /// Concurrent appends share a commit.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.inner.writer.as_ref().map_or(0, Writer::commits)
    }

    /// Hands the runs of this process over to other processes. Returns whether all actions ended in time.
    ///
    /// No action starts any more; actions with an effect, above all tools, are awaited until their end is recorded, for
    /// at most `at_most`. Then the lease ends, and with it the remaining work: open model calls are repeated elsewhere,
    /// and a tool that did not end in time counts as interrupted.
    ///
    /// This cannot be undone: only [`Database::close`] may follow.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, no action starts all the same, and the lease continues.
    pub async fn leave(&self, at_most: Duration) -> bool {
        self.inner.owner.rest();
        let is_at_rest = tokio::select! {
            () = self.inner.owner.at_work.none() => true,
            () = SystemClock.sleep(at_most) => false,
        };
        tokio::select! {
            () = self.inner.owner.leave() => {}
            // If the server does not answer, the lease ends by itself.
            () = SystemClock.sleep(LEFT_AFTER) => {}
        }
        is_at_rest
    }

    /// Writes the queued jobs, releases all claims and closes the database. Later calls to its stores fail as closed.
    ///
    /// If the server does not answer, this waits as long as appends are retried ([`Options::patience`]), and a few
    /// seconds more.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, closing continues in the background.
    pub async fn close(&self) {
        let closed = async {
            self.inner.upkeep.stop().await;
            if let Some(writer) = &self.inner.writer {
                writer.close().await;
            }
            self.inner.lookout.stop().await;
            self.inner.pool.close().await;
        };
        tokio::select! {
            () = closed => {}
            () = SystemClock.sleep(self.options().patience.saturating_add(CLOSED_AFTER)) => {
                tracing::warn!("the server does not answer; the database is left unclosed");
            }
        }
    }

    pub(crate) fn pool(&self) -> &ConnectionPool {
        &self.inner.pool
    }

    pub(crate) fn options(&self) -> &Options {
        &self.inner.options
    }

    pub(crate) fn claims(&self) -> &Claims {
        &self.inner.claims
    }

    pub(crate) fn known_ends(&self) -> &KnownEnds {
        &self.inner.known_ends
    }

    pub(crate) fn owner(&self) -> &Arc<CurrentOwner> {
        &self.inner.owner
    }

    pub(crate) fn liveness(&self) -> &Liveness {
        &self.inner.liveness
    }

    /// Counts a search of queues, and returns the number of earlier ones.
    pub(crate) fn next_turn(&self) -> usize {
        self.inner.turns.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn lookout(&self) -> &Lookout {
        &self.inner.lookout
    }

    pub(crate) fn upkeep(&self) -> &Upkeep {
        &self.inner.upkeep
    }

    pub(crate) fn writer(&self) -> Option<&Writer> {
        self.inner.writer.as_ref()
    }

    /// Returns the pool for writes of stores other than the log.
    pub(crate) fn for_writing(&self) -> Result<&ConnectionPool, StoreError> {
        match self.writer() {
            Some(_) => Ok(self.pool()),
            None => Err(StoreError::Failed("the database was opened for reading".into())),
        }
    }
}

/// Checks the schema; for writing, creates it or migrates it to this version, in one transaction.
async fn check_schema(
    connect: &Connect,
    connection: &mut PgConnection,
    place: &DatabaseTarget,
    for_writing: bool,
) -> Result<(), OpenError> {
    let refused = |error| place.open_error(error);
    let mut transaction = connect.begin(connection, "BEGIN").await.map_err(refused)?;
    match for_writing {
        true => schema::migrate(&mut transaction, place).await?,
        false => schema::of_this_version(&mut transaction, place).await?,
    }
    transaction.commit().await.map_err(refused)
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DatabaseTarget { server, database, .. } = &self.inner.place;
        let mut debug = f.debug_struct("Database");
        debug.field("server", server).field("database", database).finish_non_exhaustive()
    }
}
