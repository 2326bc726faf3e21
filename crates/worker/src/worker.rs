use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backstop_event_log::{EventLog, LogError};
use backstop_orchestrator::LocalOrchestrator;
use backstop_store_postgres::{Database, Queue, QueueLimit, WorkerRow};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::report::RunReport;
use crate::rounds::Rounds;

/// Works on the runs of a database, together with other processes.
pub struct Worker {
    pub(crate) database: Database,
    pub(crate) queue: Queue,
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) orchestrator: LocalOrchestrator,
    pub(crate) row: WorkerRow,
    pub(crate) queues: Vec<QueueLimit>,
    pub(crate) concurrency: usize,
    pub(crate) drain: Duration,
    pub(crate) reports: broadcast::Sender<RunReport>,
}

/// How a worker has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerEnd {
    /// How many runs it was at work on when it was told to stop; others go on with them.
    pub left: usize,
    /// Had all that acts on the world ended and been recorded? Otherwise it counts as interrupted.
    pub at_rest: bool,
}

impl WorkerEnd {
    pub(crate) const fn new(left: usize, at_rest: bool) -> Self {
        Self { left, at_rest }
    }
}

impl Worker {
    /// Hears what becomes of runs from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<RunReport> {
        self.reports.subscribe()
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
        self.queue.announce(&self.row).await?;
        let mut rounds = Rounds::new(self);
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
            .field("agents", &self.row.agents)
            .field("queues", &self.queues)
            .field("concurrency", &self.concurrency)
            .finish_non_exhaustive()
    }
}
