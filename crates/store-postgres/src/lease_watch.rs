//! Notifications about the lease of this process.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::LogError;
use sqlx::Connection;

use crate::database::Database;
use crate::fault::Fault;
use crate::lease::OwnerLease;

/// Interval between checks of the lease.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time in which a lost connection may be restored before the server counts as unreachable.
const RECONNECT: Duration = Duration::from_millis(500);
/// Time limit of a new connection.
const CONNECT: Duration = Duration::from_secs(5);

/// A change of the lease of this process.
#[derive(Debug)]
#[non_exhaustive]
pub enum LeaseChange {
    /// The lease cannot be renewed, because the server cannot be reached. No action starts until it can be renewed.
    CutOff(LogError),
    /// The lease has ended, as after [`Database::leave`]: other processes may take over the runs of this process. Later
    /// claims are under another lease.
    Ended,
    /// The lease is renewed again, or there is a new one.
    Held,
}

/// Watch of the lease of this process.
///
/// ```no_run
/// use backstop_store_postgres::{Database, LeaseChange};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let database = Database::connect("postgres://backstop@localhost/agents").await?;
/// let mut watch = database.lease_watch();
/// while !matches!(watch.next_change().await, LeaseChange::Ended) {}
/// println!("other processes may go on with the runs of this one");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LeaseWatch {
    database: Database,
    lease: Option<Arc<OwnerLease>>,
    state: LeaseState,
}

/// The last reported state of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaseState {
    CutOff,
    Ended,
    Held,
}

impl Database {
    /// Returns a watch of the lease of this process. There is a lease from the first claim on.
    #[must_use]
    pub fn lease_watch(&self) -> LeaseWatch {
        LeaseWatch { database: self.clone(), lease: self.owner().lease(), state: LeaseState::Held }
    }
}

impl LeaseWatch {
    /// Waits for the next change. Each change is returned once, within a second if the server refuses connections. A
    /// lost connection that is restored at once is not a change.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn next_change(&mut self) -> LeaseChange {
        loop {
            if let Some(change) = self.look().await {
                return change;
            }
            SystemClock.sleep(LOOK_EVERY).await;
        }
    }

    async fn look(&mut self) -> Option<LeaseChange> {
        // The lease that was seen last: a new one may exist since it ended.
        let has_ended = self.lease.as_ref().is_some_and(|lease| lease.has_ended());
        if has_ended && self.state != LeaseState::Ended {
            self.state = LeaseState::Ended;
            return Some(LeaseChange::Ended);
        }
        let newest = self.database.owner().lease().filter(|lease| !lease.has_ended())?;
        self.lease = Some(Arc::clone(&newest));
        match (self.state, newest.is_cut_off()) {
            (LeaseState::Held, true) => {
                SystemClock.sleep(RECONNECT).await;
                if !newest.is_cut_off() || newest.has_ended() {
                    return None;
                }
                let error = self.connect().await.err()?;
                self.state = LeaseState::CutOff;
                Some(LeaseChange::CutOff(error))
            }
            (LeaseState::CutOff | LeaseState::Ended, false) => {
                self.state = LeaseState::Held;
                Some(LeaseChange::Held)
            }
            (LeaseState::Held, false) | (LeaseState::CutOff | LeaseState::Ended, true) => None,
        }
    }

    /// Opens a separate connection, whose error is the reason why there is none.
    async fn connect(&self) -> Result<(), LogError> {
        let connecting = async { self.database.options().connect.connect().await?.close().await };
        let connected = tokio::select! {
            connected = connecting => connected,
            () = SystemClock.sleep(CONNECT) => {
                Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))
            }
        };
        Ok(connected.map_err(Fault::from)?)
    }
}
