use std::fmt;

use backstop_event_log::LogError;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::parts::Parts;
use crate::report::{RunReport, WorkerEnd};
use crate::rounds::Rounds;

/// Works on the runs of a database, together with other processes.
pub struct Worker(pub(crate) Parts);

impl Worker {
    /// Hears what becomes of runs from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<RunReport> {
        self.0.reports.subscribe()
    }

    /// Works until it is told to stop. Then it takes no more runs, waits until those at work have come to rest, at most
    /// as long as [`drain`](crate::WorkerBuilder::drain) says, and lets them go: the database is only good for being
    /// closed afterwards. A database that is away for a while is waited for.
    ///
    /// # Errors
    ///
    /// [`LogError`], when the database cannot be worked with at the start.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, runs that are at work are cancelled: stop it by the token.
    pub async fn run(&self, stop: CancellationToken) -> Result<WorkerEnd, LogError> {
        self.0.queue.announce(&self.0.row).await?;
        let mut rounds = Rounds::new(&self.0);
        tokio::select! {
            () = rounds.work() => {}
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
