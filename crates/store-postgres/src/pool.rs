//! Connections for reads and small writes.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::{PgConnection, PgPool, Postgres, Transaction};

use crate::connect::{Connect, TimeLimits, forget_statements, set_up};
use crate::fault::Fault;

/// Maximum number of timeouts of the pool while all of its connections are in use.
const MOST_WAITS: usize = 60;

/// A pool of connections. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionPool {
    pool: PgPool,
    is_shared: bool,
    limits: TimeLimits,
    /// Number of connections handed out so far.
    lent: Arc<AtomicU64>,
}

/// A connection of a pool for one statement, which is its own transaction.
///
/// Behind a proxy that shares connections it is in a transaction that [`Lent::end`] commits, because a prepared
/// statement is available only in the same transaction.
pub(crate) enum Lent {
    Direct(PoolConnection<Postgres>),
    Shared(Transaction<'static, Postgres>),
}

impl ConnectionPool {
    pub(crate) fn new(connect: &Connect, connections: u32, patience: Duration) -> Self {
        let (is_shared, limits) = (connect.is_shared(), connect.limits());
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(patience)
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    if is_shared { Ok(()) } else { set_up(connection, limits).await }
                })
            })
            .connect_lazy_with(connect.options().clone());
        Self { pool, is_shared, limits, lent: Arc::default() }
    }

    /// Returns a connection for one statement. After a write it must be [ended](Lent::end).
    pub(crate) async fn lend(&self) -> Result<Lent, Fault> {
        Ok(match self.is_shared {
            false => Lent::Direct(self.acquire().await?),
            true => Lent::Shared(self.begin().await?),
        })
    }

    /// Acquires a connection. While all are in use, or other callers get one meanwhile, a timeout is not a failure,
    /// because it shows nothing about the server.
    async fn acquire(&self) -> Result<PoolConnection<Postgres>, Fault> {
        let mut waits = 0;
        loop {
            let before = self.lent.load(Ordering::Relaxed);
            match self.pool.acquire().await {
                Ok(connection) => {
                    self.lent.fetch_add(1, Ordering::Relaxed);
                    return Ok(connection);
                }
                Err(sqlx::Error::PoolTimedOut) if waits < MOST_WAITS && self.is_busy(before) => {
                    waits += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns whether all connections are in use, or one was handed out since the count was `before`.
    fn is_busy(&self, before: u64) -> bool {
        self.is_lent() || self.lent.load(Ordering::Relaxed) != before
    }

    fn is_lent(&self) -> bool {
        self.pool.size() >= self.pool.options().get_max_connections() && self.pool.num_idle() == 0
    }

    /// Begins a transaction.
    pub(crate) async fn begin(&self) -> Result<Transaction<'static, Postgres>, Fault> {
        let mut transaction = Transaction::begin(self.acquire().await?, None).await?;
        if self.is_shared {
            forget_statements(&mut transaction, self.limits).await?;
        }
        Ok(transaction)
    }

    /// Returns a listener on a channel; `None` behind a proxy that shares connections.
    pub(crate) async fn listener(&self, channel: &str) -> Option<PgListener> {
        if self.is_shared {
            return None;
        }
        let mut listener = PgListener::connect_with(&self.pool).await.ok()?;
        listener.ignore_pool_close_event(false);
        listener.listen(channel).await.ok()?;
        Some(listener)
    }

    /// Awaits `work`; `None` if the pool is closed before.
    pub(crate) async fn until_closed<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.pool.close_event().do_until(work).await.ok()
    }

    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }
}

impl Lent {
    /// Commits the write.
    pub(crate) async fn end(self) -> Result<(), Fault> {
        match self {
            Self::Direct(_) => Ok(()),
            Self::Shared(transaction) => transaction.commit().await.map_err(Fault::at_commit),
        }
    }
}

impl Deref for Lent {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match self {
            Self::Direct(connection) => connection,
            Self::Shared(transaction) => transaction,
        }
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match self {
            Self::Direct(connection) => connection,
            Self::Shared(transaction) => transaction,
        }
    }
}

#[cfg(test)]
mod tests {
    use sqlx::postgres::PgConnectOptions;

    use backstop_clock::{Clock, SystemClock};

    use super::*;

    /// Spec: J2. No server is there: whether it is waited for depends on others alone, which are lent connections.
    #[tokio::test]
    async fn lending_pool_is_waited_for() {
        let (patience, nobody) = (Duration::from_millis(20), "postgres://u@127.0.0.1:1/d");
        let options: PgConnectOptions = nobody.parse().unwrap();
        let pool = ConnectionPool::new(&Connect::new(options, Vec::new()), 4, patience);
        assert!(pool.acquire().await.is_err(), "nobody is lent one");
        let lent = Arc::clone(&pool.lent);
        let others = async {
            // For longer than several waits of the pool; a connection is lent during each of them.
            for _ in 0..20 {
                lent.fetch_add(1, Ordering::Relaxed);
                SystemClock.sleep(patience / 4).await;
            }
        };
        tokio::select! {
            biased;
            () = others => {}
            acquired = pool.acquire() => panic!("it gives up: {:?}", acquired.err()),
        }
    }
}
