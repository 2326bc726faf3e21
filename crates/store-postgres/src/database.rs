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
use crate::open_error::{OpenError, Place};
use crate::options::Options;
use crate::pool::Pool;
use crate::schema;
use crate::store_row::agree_retention;
use crate::writer::{Setup, Writer};

/// The time limit of removing the owner's rows from the server.
const LEFT_AFTER: Duration = Duration::from_secs(5);
/// How long the server has for the end of what it was sent, beside the patience of appends.
const CLOSED_AFTER: Duration = Duration::from_secs(5);

/// An open database. Clones share it.
#[derive(Clone)]
pub struct Database {
    inner: Arc<Inner>,
    /// What new runs are sealed with.
    key: Option<LogKey>,
}

struct Inner {
    place: Place,
    options: Options,
    pool: Pool,
    /// `None` when it was opened for reading.
    writer: Option<Writer>,
    claims: Claims,
    known_ends: KnownEnds,
    owner: Arc<CurrentOwner>,
    liveness: Liveness,
    /// The number of looks at queues.
    turns: AtomicUsize,
    lookout: Lookout,
    upkeep: Upkeep,
}

impl Database {
    /// Opens a database for reading and writing, as [`Options::new`] reads its URL; makes the schema, or brings it
    /// to this version, if need be.
    ///
    /// # Errors
    ///
    /// Any variant of [`OpenError`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the schema is of this version or as it was.
    pub async fn connect(url: &str) -> Result<Self, OpenError> {
        Self::connect_with(Options::new(url)?).await
    }

    /// Opens a database as [`Database::connect`] does.
    ///
    /// # Errors
    ///
    /// Any variant of [`OpenError`] but [`OpenError::InvalidUrl`].
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

    /// Opens a database for reading. Makes and changes nothing.
    ///
    /// # Errors
    ///
    /// Any variant of [`OpenError`] but [`OpenError::InvalidUrl`].
    pub async fn connect_read_only(options: Options) -> Result<Self, OpenError> {
        Self::open(options, false).await
    }

    async fn open(mut options: Options, for_writing: bool) -> Result<Self, OpenError> {
        options.connect.limit_by(options.lease);
        let place = options.place();
        let refused = |error| place.refused(error);
        // A connection of its own says why there is none; the pool only says that it waited.
        options.connect.look().await.map_err(refused)?;
        let mut connection = options.connect.connect().await.map_err(refused)?;
        let checked = checked(&options.connect, &mut connection, &place, for_writing).await;
        let _ = connection.close().await;
        checked?;
        let pool = Pool::new(&options.connect, options.connections, options.patience);
        let (claims, lookout) = (Claims::default(), Lookout::default());
        let owner = CurrentOwner::new(options.connect.clone(), options.lease, claims.clone());
        let owner = Arc::new(owner);
        let writer = for_writing.then(|| {
            lookout.tell(&pool);
            Writer::start(Setup {
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
        let inner = Inner {
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

    /// Seals the runs that begin through this handle and its clones with a key; runs that were sealed with
    /// it can be read. The key is not stored.
    #[must_use]
    pub fn with_log_key(mut self, key: LogKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Returns the key that a run names, where it names one.
    pub(crate) fn key_named(&self, id: Option<&str>) -> Result<Option<&LogKey>, LogError> {
        let Some(id) = id else { return Ok(None) };
        let key = self.log_key().filter(|key| key.id() == id);
        key.map(Some).ok_or_else(|| LogError::key_missing(id))
    }

    pub(crate) const fn log_key(&self) -> Option<&LogKey> {
        self.key.as_ref()
    }

    /// Returns how many connections this process uses at most, as [`Options::most_connections`] says.
    #[must_use]
    pub fn most_connections(&self) -> u32 {
        self.options().most_connections()
    }

    /// Returns how many commits of appends were made since the database was opened; 0 when it was opened for
    /// reading. Appends that wait together share one.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.inner.writer.as_ref().map_or(0, Writer::commits)
    }

    /// Lets the runs of this process go, for others to go on with. Nothing more is started for them; what acts on the
    /// world, tools above all, is waited for until its end is recorded, for so long at most. Then the lease ends, and
    /// with it what is still under way: models that are being asked are asked again, and a tool that was not waited
    /// for counts as interrupted. Returns whether all had come to rest.
    ///
    /// It cannot be taken back: only [`Database::close`] is left to do.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, nothing is started all the same, and the lease lasts on.
    pub async fn leave(&self, at_most: Duration) -> bool {
        self.inner.owner.rest();
        let is_at_rest = tokio::select! {
            () = self.inner.owner.at_work.none() => true,
            () = SystemClock.sleep(at_most) => false,
        };
        tokio::select! {
            () = self.inner.owner.leave() => {}
            // A server that does not answer is not waited for: the lease ends by itself.
            () = SystemClock.sleep(LEFT_AFTER) => {}
        }
        is_at_rest
    }

    /// Writes what is queued, frees what is claimed, and closes. Later calls to its stores fail as closed. A server that
    /// does not answer is waited for as long as appends are tried again ([`Options::patience`]), and a few seconds.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the closing to go on by itself.
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

    pub(crate) fn pool(&self) -> &Pool {
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

    /// Counts a look at queues, and returns how many there were before.
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

    /// Returns the pool for a store other than the log to write through.
    pub(crate) fn for_writing(&self) -> Result<&Pool, StoreError> {
        match self.writer() {
            Some(_) => Ok(self.pool()),
            None => Err(StoreError::Failed("the database was opened for reading".into())),
        }
    }
}

/// Checks the schema, and makes it or brings it to this version for writing, in one transaction.
async fn checked(
    connect: &Connect,
    connection: &mut PgConnection,
    place: &Place,
    for_writing: bool,
) -> Result<(), OpenError> {
    let refused = |error| place.refused(error);
    let mut transaction = connect.begin(connection, "BEGIN").await.map_err(refused)?;
    match for_writing {
        true => schema::migrate(&mut transaction, place).await?,
        false => schema::of_this_version(&mut transaction, place).await?,
    }
    transaction.commit().await.map_err(refused)
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { server, database, .. } = &self.inner.place;
        let mut debug = f.debug_struct("Database");
        debug.field("server", server).field("database", database).finish_non_exhaustive()
    }
}
