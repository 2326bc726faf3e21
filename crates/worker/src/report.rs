use std::time::Duration;

use layer0::Code;
use layer0::id::RunId;

pub use backstop_event_log::RunState;

/// What a worker tells of its runs and of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerReport {
    /// The database cannot be worked with: the server is away, or refuses what a worker needs. It is tried again and
    /// again; what goes wrong meanwhile is not reported anew.
    #[non_exhaustive]
    DatabaseAway {
        /// The code of what went wrong first.
        code: String,
        /// The same in words.
        message: String,
    },
    /// The database can be worked with again.
    #[non_exhaustive]
    DatabaseBack {
        /// How long it was reported as away.
        after: Duration,
    },
    /// The lease of this process has ended, because it could not be renewed in time: other processes may go on with
    /// the runs that were at work here. The worker goes on under another lease as soon as the database lets it.
    LeaseLost,
    /// Something became of a run.
    Run(RunReport),
}

impl From<RunReport> for WorkerReport {
    fn from(report: RunReport) -> Self {
        Self::Run(report)
    }
}

/// What became of a run at a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunReport {
    /// The worker begins it, or goes on with it.
    #[non_exhaustive]
    Begun {
        /// The run.
        run: RunId,
        /// Its agent.
        agent: String,
        /// Was it begun before, by this or another process?
        goes_on: bool,
    },
    /// The worker is not at work on it any more: it is over, waits, or is parked.
    #[non_exhaustive]
    Left {
        /// The run.
        run: RunId,
        /// What it is doing.
        state: RunState,
        /// The code of its failure or stop.
        reason: Option<Code>,
    },
    /// It could not be started, and stays in the queue for a person to see.
    #[non_exhaustive]
    Refused {
        /// The run.
        run: RunId,
        /// The code.
        code: String,
        /// What went wrong, in words.
        message: String,
    },
    /// It could not be gone on with just now; this or another worker tries again.
    #[non_exhaustive]
    PutOff {
        /// The run.
        run: RunId,
        /// The code of what was in the way.
        code: String,
        /// The same in words.
        message: String,
    },
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
