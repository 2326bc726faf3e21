use std::fmt;

use backstop_event_log::LogError;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::health::Health;
use crate::parts::WorkerParts;
use crate::report::{WorkerEnd, WorkerReport};
use crate::rounds::Rounds;

/// A worker that performs the runs of a database, together with other processes.
pub struct Worker(pub(crate) WorkerParts);

impl Worker {
    /// Subscribes to reports from now on: changes of runs, an unreachable database, a lost lease. A subscriber that is
    /// 1024 reports behind loses the oldest.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<WorkerReport> {
        self.0.reports.subscribe()
    }

    /// Performs runs until `stop` is cancelled. Then it takes no more runs, waits at most for the time set by
    /// [`drain`](crate::WorkerBuilder::drain) until its runs have come to rest, and releases them: afterwards the
    /// database can only be closed. If the database is unreachable for a while, the worker waits for it and reports
    /// that to [`Worker::subscribe`].
    ///
    /// # Errors
    ///
    /// [`LogError`] if the database cannot be used at the start.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, its runs are cancelled; cancel the token instead.
    pub async fn run(&self, stop: CancellationToken) -> Result<WorkerEnd, LogError> {
        let health = Health::new(&self.0.reports);
        let mut rounds = Rounds::new(&self.0, &health);
        // A server that does not answer does not keep the worker from stopping.
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
