use std::time::Duration;

use layer0::Code;
use layer0::id::RunId;

pub use backstop_event_log::RunState;

/// A report of a worker about its runs and itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerReport {
    /// The database cannot be used: the server is unreachable, or refuses a request of the worker. The worker keeps
    /// trying; further errors in the meantime are not reported.
    #[non_exhaustive]
    DatabaseAway {
        /// Code of the first error.
        code: String,
        /// Message of the first error.
        message: String,
    },
    /// The database can be used again.
    #[non_exhaustive]
    DatabaseBack {
        /// Time since it was reported as away.
        after: Duration,
    },
    /// The lease of this process has ended, because it could not be renewed in time: other processes may resume the
    /// runs of this one. The worker continues under another lease as soon as the database grants one.
    LeaseLost,
    /// A change of a run.
    Run(RunChange),
}

impl From<RunChange> for WorkerReport {
    fn from(report: RunChange) -> Self {
        Self::Run(report)
    }
}

/// A change of a run at a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunChange {
    /// The worker starts or resumes the run.
    #[non_exhaustive]
    Begun {
        /// The run.
        run: RunId,
        /// Its agent.
        agent: String,
        /// Whether it was started before, by this or another process.
        goes_on: bool,
    },
    /// The worker has finished with the run: it has ended, waits, is parked, or is released while it is running.
    #[non_exhaustive]
    Left {
        /// The run.
        run: RunId,
        /// State of the run.
        state: RunState,
        /// Code of its failure or stop.
        reason: Option<Code>,
    },
    /// The run could not be started, and stays in the queue for a person to see.
    #[non_exhaustive]
    Refused {
        /// The run.
        run: RunId,
        /// Code of the error.
        code: String,
        /// Message of the error.
        message: String,
    },
    /// The run could not be resumed for the moment; this or another worker tries again.
    #[non_exhaustive]
    PutOff {
        /// The run.
        run: RunId,
        /// Code of the error.
        code: String,
        /// Message of the error.
        message: String,
    },
}

/// Result of a worker that has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerEnd {
    /// Number of its runs still running when it returned; other workers resume them.
    pub left: usize,
    /// Whether all actions on the outside world had ended and been recorded; otherwise they count as interrupted.
    pub at_rest: bool,
}

impl WorkerEnd {
    pub(crate) const fn new(left: usize, at_rest: bool) -> Self {
        Self { left, at_rest }
    }
}
