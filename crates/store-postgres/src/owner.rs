//! Who owns runs: a process that has the database open, for as long as it lives.
//!
//! An owner is a row with a lease, which a thread of its own renews, and an advisory lock that the server frees
//! when the connection of that thread ends: a process that dies is known to be dead at once. Behind a proxy that
//! shares connections there is no such lock, and the lease alone counts.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use layer0::error::BoxError;
use sqlx::{Connection, PgConnection};
use tokio::sync::oneshot;

use crate::connect::Connect;
use crate::fault::Fault;
use crate::lease::{Lease, boot_millis};
use crate::pool::Pool;

/// How long after a lock was seen free it is looked at again, before its owner is taken for dead.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How often the connection of the lock is looked at.
const CHECK_EVERY: Duration = Duration::from_millis(150);
/// How long is waited before a connection that was lost is tried again.
const RECONNECT: Duration = Duration::from_millis(200);
/// How many renewals are missed before the row of an owner is taken away: it is looked at by then.
const KEPT_LEASES: i32 = 240;

/// The owner that this open database is.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) id: Arc<str>,
    pub(crate) lease: Arc<Lease>,
    /// Dropped, it stops the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Owner {
    /// Makes an owner, with a lease that a thread renews.
    pub(crate) async fn start(connect: Connect, lasts: Duration) -> Result<Self, Fault> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(Fault::failed)?;
        let id: Arc<str> =
            random[..8].iter().map(|byte| format!("{byte:02x}")).collect::<String>().into();
        let [_, _, _, _, _, _, _, _, lock @ ..] = random;
        let lease = Arc::new(Lease::new(lasts));
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = oneshot::channel();
        let keeper = Keeper {
            id: Arc::clone(&id),
            lock: i64::from_be_bytes(lock),
            lease: Arc::clone(&lease),
            connect,
        };
        let thread = std::thread::Builder::new().name("backstop-lease".into());
        let thread = thread.spawn(move || keeper.run(ready, stopped)).map_err(Fault::failed)?;
        let owner = Self { id, lease, stop: Some(stop), thread: Some(thread) };
        match is_ready.await {
            Ok(Ok(())) => Ok(owner),
            Ok(Err(fault)) => Err(fault),
            Err(_) => Err(Fault::Failed("the thread of the lease is gone".into())),
        }
    }

    /// Ends this owner; nothing may be claimed by it any more.
    pub(crate) async fn leave(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

/// Does a process hold its lock, where it has one?
macro_rules! has_lock {
    () => {
        "(lock IS NULL OR EXISTS (SELECT 1 FROM pg_locks \
         WHERE locktype = 'advisory' AND granted AND objsubid = 1 \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
         AND classid::bigint = (lock >> 32) & 4294967295 \
         AND objid::bigint = lock & 4294967295))"
    };
}
pub(crate) use has_lock;

/// Does the process of another owner live?
pub(crate) async fn is_alive(pool: &Pool, id: &str) -> Result<bool, Fault> {
    for look in 0..2 {
        if look > 0 {
            SystemClock.sleep(LOOK_AGAIN).await;
        }
        let state: Option<(bool, bool)> = sqlx::query_as(concat!(
            "SELECT lease_until > clock_timestamp(), ",
            has_lock!(),
            " FROM backstop.processes WHERE id = $1"
        ))
        .bind(id)
        .fetch_optional(&mut *pool.lend().await?)
        .await?;
        match state {
            Some((true, true)) => return Ok(true),
            // It may have lost its connection, and get the lock again.
            Some((true, false)) => {}
            Some((false, _)) | None => return Ok(false),
        }
    }
    Ok(false)
}

/// What the thread does: it runs no code of an application.
struct Keeper {
    id: Arc<str>,
    lock: i64,
    lease: Arc<Lease>,
    connect: Connect,
}

impl Keeper {
    fn run(self, ready: oneshot::Sender<Result<(), Fault>>, stopped: oneshot::Receiver<()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(self.keep(ready, stopped)),
            Err(error) => drop(ready.send(Err(Fault::failed(error)))),
        }
    }

    async fn keep(
        self,
        ready: oneshot::Sender<Result<(), Fault>>,
        mut stopped: oneshot::Receiver<()>,
    ) {
        let mut connection = match self.begin().await {
            Ok(connection) => Some(connection),
            Err(error) => return drop(ready.send(Err(error.into()))),
        };
        drop(ready.send(Ok(())));
        loop {
            let wait = if connection.is_some() { self.lease.renewal() } else { RECONNECT };
            tokio::select! {
                _ = &mut stopped => break,
                () = self.wait(&mut connection, wait) => {}
            }
            if self.lease.has_ended() {
                tracing::warn!("the lease of this process has ended; its runs are others' now");
                break;
            }
            let kept = match connection.take() {
                Some(connection) => self.renew(connection).await,
                None => self.rejoin().await,
            };
            match kept {
                Ok(kept) => connection = kept,
                Err(error) => {
                    self.lease.cut_off();
                    tracing::warn!(error = %said(error), "the connection of the lease was lost");
                }
            }
        }
        self.lease.end();
        if let Some(mut connection) = connection {
            let _ = self.remove(&mut connection).await;
            let _ = connection.close().await;
        }
    }

    /// Waits so long, or until the connection is lost that holds the lock: a process that sees the lock free looks
    /// again in a moment, and it has to be held again by then.
    async fn wait(&self, connection: &mut Option<PgConnection>, wait: Duration) {
        let until = SystemClock.now().after(wait);
        loop {
            let left = until.since(SystemClock.now());
            SystemClock.sleep(left.min(CHECK_EVERY)).await;
            let left = until.since(SystemClock.now());
            if left.is_zero() {
                return;
            }
            let Some(held) = connection.as_mut().filter(|_| !self.connect.is_shared()) else {
                continue;
            };
            let is_there = tokio::select! {
                answer = held.ping() => answer.is_ok(),
                () = SystemClock.sleep(left) => false,
            };
            if !is_there {
                *connection = None;
                self.lease.cut_off();
                tracing::warn!("the connection of the lease was lost");
                return;
            }
        }
    }

    async fn begin(&self) -> Result<PgConnection, sqlx::Error> {
        let mut connection = self.connect.connect().await?;
        let has_lock = !self.connect.is_shared();
        if has_lock {
            self.try_lock(&mut connection).await?;
        } else {
            tracing::warn!(
                "connections are shared by a proxy; leases alone say which process lives"
            );
        }
        let sent_at = boot_millis();
        let mut transaction = self.connect.begin(&mut connection, "BEGIN").await?;
        sqlx::query(
            "INSERT INTO backstop.processes VALUES ($1, $2, clock_timestamp() + $3 * interval '1 ms')",
        )
        .bind(&*self.id)
        .bind(has_lock.then_some(self.lock))
        .bind(self.lasts())
        .execute(&mut *transaction)
        .await?;
        // Rows of processes that are gone for long.
        sqlx::query(
            "DELETE FROM backstop.processes WHERE lease_until < clock_timestamp() - $1 * interval '1 ms'",
        )
        .bind(self.lasts() * f64::from(KEPT_LEASES))
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        self.lease.renewed(sent_at);
        Ok(connection)
    }

    fn lasts(&self) -> f64 {
        self.lease.lasts().as_secs_f64() * 1_000.0
    }

    async fn try_lock(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        sqlx::query_scalar("SELECT pg_try_advisory_lock($1)")
            .bind(self.lock)
            .fetch_one(connection)
            .await
    }

    /// Renews the lease, and gives the connection back if it is to be used on.
    async fn renew(
        &self,
        mut connection: PgConnection,
    ) -> Result<Option<PgConnection>, sqlx::Error> {
        let sent_at = boot_millis();
        let renewed = self.send_renewal(&mut connection);
        // A renewal that hangs is one that failed.
        let renewed = tokio::select! {
            renewed = renewed => renewed?,
            () = SystemClock.sleep(self.lease.left()) => {
                return Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()));
            }
        };
        match renewed {
            false => self.lease.end(),
            true => self.lease.renewed(sent_at),
        }
        Ok(Some(connection))
    }

    /// Renews the row of the lease; says whether there was one that had not ended.
    async fn send_renewal(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        let mut transaction = self.connect.begin(connection, "BEGIN").await?;
        let renewed = sqlx::query(
            "UPDATE backstop.processes SET lease_until = clock_timestamp() + $2 * interval '1 ms' \
             WHERE id = $1 AND lease_until > clock_timestamp()",
        )
        .bind(&*self.id)
        .bind(self.lasts())
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(renewed.rows_affected() > 0)
    }

    async fn remove(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let mut transaction = self.connect.begin(connection, "BEGIN").await?;
        let gone = sqlx::query("DELETE FROM backstop.processes WHERE id = $1").bind(&*self.id);
        gone.execute(&mut *transaction).await?;
        transaction.commit().await
    }

    /// Connects again, takes the lock again, and renews the lease; gives no connection where the server still
    /// keeps the lock for the old one.
    async fn rejoin(&self) -> Result<Option<PgConnection>, sqlx::Error> {
        let connecting = self.connect.connect();
        let mut connection = tokio::select! {
            connection = connecting => connection?,
            () = SystemClock.sleep(self.lease.left()) => {
                return Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()));
            }
        };
        // Without a lock, the row of the lease alone counts.
        let is_ours = self.connect.is_shared() || self.try_lock(&mut connection).await?;
        match is_ours {
            true => self.renew(connection).await,
            false => {
                connection.close().await?;
                Ok(None)
            }
        }
    }
}

fn said(error: sqlx::Error) -> BoxError {
    crate::fault::said(error)
}
