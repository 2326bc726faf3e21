//! The thread that holds the lock and renews the lease.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::Claims;
use layer0::error::BoxError;
use layer0::id::RunId;
use sqlx::{Connection, PgConnection};
use tokio::sync::oneshot;

use crate::connect::Connect;
use crate::fault::{self, Fault};
use crate::lease::{OwnerLease, boot_millis};
use crate::liveness::has_lock;
use crate::rows::to_i64;
use crate::text::encode_text;

/// Interval between checks of the lock's connection.
const CHECK_EVERY: Duration = Duration::from_millis(150);
/// Time limit of an answer on the lock's connection; after it the lock counts as lost.
const ANSWERED_AFTER: Duration = Duration::from_secs(1);
/// Delay before a lost connection is retried.
const RECONNECT: Duration = Duration::from_millis(200);
/// Time limit of a new connection.
const CONNECTED_AFTER: Duration = Duration::from_secs(2);
/// Time limit for removing this process's row at the end.
const LEFT_AFTER: Duration = Duration::from_secs(2);
/// Time for which the row of a process without runs is kept: longer than any change of a clock.
const KEPT: &str = "7 days";

/// Begins a transaction that may be lost if the server crashes: its connection is lost too, and the lease is renewed on
/// the next one. A standby that stalls must not delay it.
const BEGIN_RENEWAL: &str = "BEGIN; SET LOCAL synchronous_commit = off";

/// The work of the thread, which runs no code of an application.
pub(super) struct Keeper {
    pub(super) id: Arc<str>,
    pub(super) lock: i64,
    pub(super) lease: Arc<OwnerLease>,
    pub(super) claims: Claims,
    pub(super) connect: Connect,
}

impl Keeper {
    pub(super) fn run(
        self,
        ready: oneshot::Sender<Result<(), Fault>>,
        stopped: oneshot::Receiver<()>,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(self.keep(ready, stopped)),
            Err(error) => drop(ready.send(Err(Fault::from_other(error)))),
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
                    tracing::warn!(error = %into_plain_error(error), "the connection of the lease was lost");
                }
            }
        }
        self.lease.end();
        if let Some(mut connection) = connection {
            let leaving = async {
                let _ = self.remove(&mut connection).await;
                let _ = connection.close().await;
            };
            // If the server does not answer, other processes find that the row is dead.
            tokio::select! {
                () = leaving => {}
                () = SystemClock.sleep(LEFT_AFTER) => {}
            }
        }
    }

    /// Waits until the lease must be renewed, or the lock's connection is lost.
    ///
    /// A process that sees the lock free checks it again soon, and it must be held again by then. A check that is
    /// answered too late ends the wait, so that the renewal shows which claims still hold.
    async fn wait(&self, connection: &mut Option<PgConnection>, wait: Duration) {
        let until = SystemClock.monotonic() + wait;
        loop {
            let left = until.saturating_sub(SystemClock.monotonic());
            SystemClock.sleep(left.min(CHECK_EVERY)).await;
            if SystemClock.monotonic() >= until {
                return;
            }
            let Some(held) = connection.as_mut().filter(|_| !self.connect.is_shared()) else {
                continue;
            };
            let sent_at = boot_millis();
            let is_there = tokio::select! {
                biased;
                answer = held.ping() => answer.is_ok(),
                () = SystemClock.sleep(ANSWERED_AFTER) => false,
            };
            if !is_there {
                *connection = None;
                self.lease.cut_off();
                tracing::warn!("the connection of the lease was lost");
                return;
            }
            if !self.lease.confirm_lock(sent_at) {
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
            "INSERT INTO backstop.processes (id, lock, lease_until, lease_ms) \
             VALUES ($1, $2, clock_timestamp() + $3 * interval '1 ms', $3)",
        )
        .bind(&*self.id)
        .bind(has_lock.then_some(self.lock))
        .bind(self.lasts())
        .execute(&mut *transaction)
        .await?;
        // Rows of processes that ended long ago.
        sqlx::query(concat!(
            "DELETE FROM backstop.processes WHERE lease_until < clock_timestamp() - $1::interval \
             AND (lock IS NULL OR NOT ",
            has_lock!(),
            ")"
        ))
        .bind(KEPT)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        self.lease.record_renewal(sent_at);
        Ok(connection)
    }

    /// Returns the length of the lease, in milliseconds.
    fn lasts(&self) -> i64 {
        i64::try_from(self.lease.lasts().as_millis()).unwrap_or(i64::MAX)
    }

    /// Returns the time limit of an answer on the lock's connection.
    fn patience(&self) -> Duration {
        match self.connect.is_shared() {
            true => self.lease.time_left(),
            false => self.lease.time_left().min(ANSWERED_AFTER),
        }
    }

    async fn try_lock(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        sqlx::query_scalar("SELECT pg_try_advisory_lock($1)")
            .bind(self.lock)
            .fetch_one(connection)
            .await
    }

    /// Renews the lease, drops the claims that others have, and returns the connection if it is still usable.
    async fn renew(
        &self,
        mut connection: PgConnection,
    ) -> Result<Option<PgConnection>, sqlx::Error> {
        let sent_at = boot_millis();
        let held = self.claims.still_held();
        let renewed = self.send_renewal(&mut connection, &held);
        // A renewal that hangs counts as failed.
        let renewed = tokio::select! {
            biased;
            renewed = renewed => renewed?,
            () = SystemClock.sleep(self.patience()) => {
                return Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()));
            }
        };
        match renewed {
            None => self.lease.end(),
            Some(lost) => {
                // Before any action may start.
                self.lose(&lost, &held);
                self.lease.record_renewal(sent_at);
            }
        }
        Ok(Some(connection))
    }

    /// Renews the row of the lease, and returns which of these runs are claimed under another epoch. `None` if the row
    /// is gone: another process has considered this one dead.
    async fn send_renewal(
        &self,
        connection: &mut PgConnection,
        held: &[(RunId, u64)],
    ) -> Result<Option<Vec<String>>, sqlx::Error> {
        let mut transaction = self.connect.begin(connection, BEGIN_RENEWAL).await?;
        let renewed = sqlx::query(
            "UPDATE backstop.processes SET lease_until = clock_timestamp() + $2 * interval '1 ms' \
             WHERE id = $1",
        )
        .bind(&*self.id)
        .bind(self.lasts())
        .execute(&mut *transaction)
        .await?;
        let (runs, epochs): (Vec<_>, Vec<_>) =
            held.iter().map(|(run, epoch)| (encode_text(run.as_str()), to_i64(*epoch))).unzip();
        let lost = sqlx::query_scalar(
            "SELECT held.run FROM unnest($1::text[], $2::bigint[]) AS held (run, epoch) \
             JOIN backstop.runs ON runs.run = held.run WHERE runs.epoch <> held.epoch",
        )
        .bind(runs)
        .bind(epochs)
        .fetch_all(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok((renewed.rows_affected() > 0).then_some(lost))
    }

    /// Marks the claims of runs that others have as lost.
    fn lose(&self, lost: &[String], held: &[(RunId, u64)]) {
        if lost.is_empty() {
            return;
        }
        let is_lost = |run: &RunId| lost.iter().any(|lost| *lost == *encode_text(run.as_str()));
        let lost: Vec<_> = held.iter().filter(|(run, _)| is_lost(run)).cloned().collect();
        for (run, _) in &lost {
            tracing::warn!(%run, "another process has taken the run over");
        }
        self.claims.lose(&lost);
        self.lease.ring();
    }

    async fn remove(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let mut transaction = self.connect.begin(connection, "BEGIN").await?;
        let gone = sqlx::query("DELETE FROM backstop.processes WHERE id = $1").bind(&*self.id);
        gone.execute(&mut *transaction).await?;
        transaction.commit().await
    }

    /// Reconnects, takes the lock again and renews the lease. Returns no connection if the server still holds the lock
    /// for the old one.
    async fn rejoin(&self) -> Result<Option<PgConnection>, sqlx::Error> {
        let joining = async {
            let mut connection = self.connect.connect().await?;
            // Without a lock, only the row of the lease counts.
            let is_ours = self.connect.is_shared() || self.try_lock(&mut connection).await?;
            Ok::<_, sqlx::Error>((connection, is_ours))
        };
        let (connection, is_ours) = tokio::select! {
            biased;
            joined = joining => joined?,
            () = SystemClock.sleep(self.lease.time_left().min(CONNECTED_AFTER)) => {
                return Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()));
            }
        };
        match is_ours {
            true => self.renew(connection).await,
            false => {
                connection.close().await?;
                Ok(None)
            }
        }
    }
}

fn into_plain_error(error: sqlx::Error) -> BoxError {
    fault::into_plain_error(error)
}
