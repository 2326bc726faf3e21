use std::fmt;

use backstop_event_log::LogError;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::health::Health;
use crate::parts::Parts;
use crate::report::{WorkerEnd, WorkerReport};
use crate::rounds::Rounds;

/// Works on the runs of a database, together with other processes.
pub struct Worker(pub(crate) Parts);

impl Worker {
    /// Hears from now on what becomes of runs, and what keeps the worker from working: a database that is away, a lease
    /// that was lost. A subscriber that is 1024 reports behind loses the oldest.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<WorkerReport> {
        self.0.reports.subscribe()
    }

    /// Works until it is told to stop. Then it takes no more runs, waits until those at work have come to rest, at most
    /// as long as [`drain`](crate::WorkerBuilder::drain) says, and lets them go: the database is only good for being
    /// closed afterwards. A database that is away for a while is waited for, which [`Worker::subscribe`] tells.
    ///
    /// # Errors
    ///
    /// [`LogError`], when the database cannot be worked with at the start.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, runs that are at work are cancelled: stop it by the token.
    pub async fn run(&self, stop: CancellationToken) -> Result<WorkerEnd, LogError> {
        let health = Health::new(&self.0.reports);
        let mut rounds = Rounds::new(&self.0, &health);
        // A server that does not answer keeps no worker that is stopped.
        let works = async {
            self.0.queue.announce(&self.0.row).await?;
            rounds.work().await;
            Ok::<_, LogError>(())
        };
        tokio::select! {
            ended = works => ended?,
            () = health.follow(self.0.database.lease_watch()) => {}
            () = stop.cancelled() => {}
        }
        Ok(rounds.leave().await)
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("agents", &self.0.row.agents)
            .field("queues", &self.0.queues)
            .field("concurrency", &self.0.concurrency)
            .finish_non_exhaustive()
    }
}
