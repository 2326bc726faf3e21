use std::sync::Arc;
use std::time::Duration;

use backstop_event_log::EventLog;
use backstop_orchestrator::LocalOrchestrator;
use backstop_store_postgres::{Database, Queue, QueueLimit, WorkerRow};
use tokio::sync::broadcast;

use crate::report::WorkerReport;

/// The parts of a worker.
pub(crate) struct WorkerParts {
    pub(crate) database: Database,
    pub(crate) queue: Queue,
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) orchestrator: LocalOrchestrator,
    pub(crate) row: WorkerRow,
    pub(crate) queues: Vec<QueueLimit>,
    pub(crate) concurrency: usize,
    pub(crate) drain: Duration,
    pub(crate) reports: broadcast::Sender<WorkerReport>,
}
