//! From what was registered to a worker.

use std::sync::Arc;
use std::time::Duration;

use backstop_event_log::EventLog;
use backstop_orchestrator::{LocalOrchestrator, OperatorNameError};
use backstop_store_postgres::{Database, Queue, QueueLimit, WorkerRow};
use layer0::Operator;
use thiserror::Error;
use tokio::sync::broadcast;

use crate::parts::Parts;
use crate::worker::Worker;

/// How many runs are at work at once, unless told otherwise.
const CONCURRENCY: usize = 16;
/// How long a worker that is to stop waits for what is at work, unless told otherwise.
const DRAIN: Duration = Duration::from_secs(30);
/// How long an endpoint may ask to be left alone before a run fails, unless told otherwise.
const MAX_PARK: Duration = Duration::from_secs(24 * 60 * 60);
/// How many reports wait for a subscriber that is slow.
const REPORTS: usize = 1024;

/// Puts a [`Worker`] together.
#[must_use = "a worker is made by `build`"]
pub struct WorkerBuilder {
    database: Database,
    operators: Vec<Arc<dyn Operator>>,
    queues: Vec<QueueLimit>,
    concurrency: usize,
    adopts: bool,
    drain: Duration,
    max_park: Duration,
}

impl Worker {
    /// Begins a worker of a database, without operators.
    pub fn builder(database: &Database) -> WorkerBuilder {
        WorkerBuilder {
            database: database.clone(),
            operators: Vec::new(),
            queues: Vec::new(),
            concurrency: CONCURRENCY,
            adopts: false,
            drain: DRAIN,
            max_park: MAX_PARK,
        }
    }
}

impl WorkerBuilder {
    /// Registers an agent, a workflow or another operator that keeps a record in the database, under its name. Those
    /// that they dispatch are registered too, and need no record.
    pub fn operator(self, operator: impl Operator + 'static) -> Self {
        self.shared_operator(Arc::new(operator))
    }

    /// Registers an operator that is shared.
    pub fn shared_operator(mut self, operator: Arc<dyn Operator>) -> Self {
        self.operators.push(operator);
        self
    }

    /// Takes runs from a queue; from [`Queue::DEFAULT`], without a limit, where none is given.
    pub fn queue(mut self, queue: QueueLimit) -> Self {
        self.queues.push(queue);
        self
    }

    /// Limits how many runs are at work at once here; 16 otherwise, at least 1.
    pub fn concurrency(mut self, runs: usize) -> Self {
        self.concurrency = runs.max(1);
        self
    }

    /// Goes on with runs whose agent was defined otherwise until now, with the definition that it has here, which
    /// `run.resumed` records; so are runs that they dispatched. Otherwise such runs are left to other workers.
    pub const fn adopt(mut self, adopts: bool) -> Self {
        self.adopts = adopts;
        self
    }

    /// Waits so long for what is at work once it is to stop; 30 s otherwise.
    pub const fn drain(mut self, at_most: Duration) -> Self {
        self.drain = at_most;
        self
    }

    /// Lets endpoints ask to be left alone for so long before a run fails; a day otherwise. The run is parked
    /// meanwhile, and at work nowhere.
    pub const fn max_park(mut self, longest: Duration) -> Self {
        self.max_park = longest;
        self
    }

    /// Makes the worker.
    ///
    /// # Errors
    ///
    /// [`WorkerBuildError`].
    pub fn build(mut self) -> Result<Worker, WorkerBuildError> {
        let agents: Vec<(String, String)> = self
            .operators
            .iter()
            .filter(|operator| operator.can_go_on())
            .filter_map(|it| Some((it.name().to_owned(), it.digest()?.to_string())))
            .collect();
        if agents.is_empty() {
            return Err(WorkerBuildError::NoAgent);
        }
        if self.queues.is_empty() {
            self.queues.push(QueueLimit::new(Queue::DEFAULT));
        }
        let log: Arc<dyn EventLog> = Arc::new(self.database.log());
        let orchestrator = LocalOrchestrator::builder()
            .shared_log(Arc::clone(&log))
            .max_concurrent(self.concurrency)
            .max_park(self.max_park)
            .leaves_parked();
        let operators = self.operators.into_iter();
        let orchestrator =
            operators.fold(orchestrator, |all, operator| all.shared_operator(operator)).build()?;
        let queues = self.queues.iter().map(|it| it.queue.clone()).collect();
        Ok(Worker(Parts {
            queue: self.database.queue(),
            database: self.database,
            log,
            orchestrator,
            row: WorkerRow::new(agents, queues).adopts(self.adopts),
            queues: self.queues,
            concurrency: self.concurrency,
            drain: self.drain,
            reports: broadcast::Sender::new(REPORTS),
        }))
    }
}

/// Says why a worker cannot be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkerBuildError {
    /// There is nothing to run: no operator keeps a record.
    #[error("a worker needs an agent or a workflow with a log: only those can be gone on with")]
    NoAgent,
    /// Operators cannot be dispatched by their names.
    #[error("operators cannot be registered")]
    Operators(#[from] OperatorNameError),
}
