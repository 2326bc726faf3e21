//! The builder of a worker.

use std::sync::Arc;
use std::time::Duration;

use backstop_event_log::EventLog;
use backstop_orchestrator::{LocalOrchestrator, OperatorNameError};
use backstop_store_postgres::{Database, Queue, QueueLimit, WorkerRow};
use layer0::Operator;
use thiserror::Error;
use tokio::sync::broadcast;

use crate::parts::WorkerParts;
use crate::worker::Worker;
use layer0::code;
use layer0::failure::{Effect, Facts, Failure};

/// Default number of concurrent runs.
const CONCURRENCY: usize = 16;
/// Default time for which a stopping worker waits for its runs.
const DRAIN: Duration = Duration::from_secs(30);
/// Default of the longest time for which an endpoint may ask to wait without a failure of the run.
const MAX_PARK: Duration = Duration::from_secs(24 * 60 * 60);
/// Number of reports buffered for a slow subscriber.
const REPORTS: usize = 1024;

/// Builder of a [`Worker`].
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
    /// Returns a builder for a worker of a database, without operators.
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
    /// Registers an agent, a workflow or another operator that keeps a record in the database, under its name. The
    /// operators that it dispatches are registered too, and need no record.
    pub fn operator(self, operator: impl Operator + 'static) -> Self {
        self.shared_operator(Arc::new(operator))
    }

    /// Registers a shared operator.
    pub fn shared_operator(mut self, operator: Arc<dyn Operator>) -> Self {
        self.operators.push(operator);
        self
    }

    /// Adds a queue to take runs from; without any, the worker takes runs from [`Queue::DEFAULT`], without a limit.
    pub fn queue(mut self, queue: QueueLimit) -> Self {
        self.queues.push(queue);
        self
    }

    /// Limits the number of concurrent runs of this worker; 16 by default, at least 1.
    pub fn concurrency(mut self, runs: usize) -> Self {
        self.concurrency = runs.max(1);
        self
    }

    /// Sets whether the worker resumes runs of an agent with another definition. It then adopts its own definition,
    /// which `run.resumed` records; the same holds for their child runs. By default such runs are left to other
    /// workers.
    pub const fn adopt(mut self, adopts: bool) -> Self {
        self.adopts = adopts;
        self
    }

    /// Sets how long a stopping worker waits for its runs; 30 s by default.
    pub const fn drain(mut self, at_most: Duration) -> Self {
        self.drain = at_most;
        self
    }

    /// Sets the longest time for which an endpoint may ask to wait without a failure of the run; a day by
    /// default. The run is parked meanwhile, and occupies no worker.
    pub const fn max_park(mut self, longest: Duration) -> Self {
        self.max_park = longest;
        self
    }

    /// Builds the worker.
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
        Ok(Worker(WorkerParts {
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

/// An error that keeps a worker from being built.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkerBuildError {
    /// No operator keeps a record, so the worker has nothing to run.
    ///
    /// Retry: never. Effect: none.
    #[error("a worker needs an agent or a workflow with a log: only those can be gone on with")]
    NoAgent,
    /// The names of operators do not allow their dispatch.
    ///
    /// Retry: never. Effect: none.
    #[error("operators cannot be registered")]
    Operators(#[from] OperatorNameError),
}

impl Failure for WorkerBuildError {
    fn facts(&self) -> Facts {
        match self {
            Self::NoAgent | Self::Operators(_) => Facts::never(code::CONFIG_INVALID, Effect::None),
        }
    }
}
