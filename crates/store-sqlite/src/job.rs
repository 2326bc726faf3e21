//! Jobs of the writer and their answers.

use std::sync::Arc;

use backstop_error_store::{NewResult, StoreError, StoredError};
use backstop_event_log::{KnownEnds, LogError};
use layer0::event::LostTail;
use layer0::id::{ResultId, RunId};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::append::Append;
use crate::chore::Chore;
use crate::errors::Insert;
use crate::job_error::JobError;
use crate::many::MAX_ROWS;
use crate::sent::SubmittedRequest;
use crate::state::{Change, Changed};

/// A job of the writer, with the channel for its answer.
pub(crate) enum Job {
    Append(Box<Append>, oneshot::Sender<Result<(), LogError>>),
    Store(Box<Insert>, oneshot::Sender<Result<StoredError, StoreError>>),
    Put(Box<NewResult>, oneshot::Sender<Result<ResultId, StoreError>>),
    Change(Box<Change>, oneshot::Sender<Result<Changed, StoreError>>),
    Chore(Arc<dyn Chore>, oneshot::Sender<Result<u64, StoreError>>),
    Send(Box<SubmittedRequest>, oneshot::Sender<Result<Option<RunId>, LogError>>),
    Claim(Box<ClaimRequest>, oneshot::Sender<Result<Claiming, LogError>>),
    /// Releases a run that was claimed under this epoch; without an epoch, a run whose claim nobody waits for any more.
    Release(RunId, Option<u64>),
}

/// A run to claim.
pub(crate) struct ClaimRequest {
    pub(crate) run: RunId,
    /// Dead owners: the run is claimed even if they own it or a run of its tree.
    pub(crate) dead: Vec<Arc<str>>,
    /// The newest events that this process knows to be acknowledged.
    pub(crate) ends: KnownEnds,
    /// Whether it is claimed even if its record has lost its tail.
    pub(crate) accepts_loss: bool,
}

/// A job in the queue, with its permit.
pub(crate) struct Queued {
    pub(crate) job: Job,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Queued {
    /// Queues a job with its permit.
    pub(crate) const fn new(job: Job, permit: Option<OwnedSemaphorePermit>) -> Self {
        Self { job, _permit: permit }
    }

    /// Queues a job that nobody waits for, without a permit.
    pub(crate) const fn release(job: Job) -> Self {
        Self { job, _permit: None }
    }
}

/// The result of a claim.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Claiming {
    /// Granted under this epoch, with the newest lost event of its record, if any.
    Given(u64, Option<LostTail>),
    /// Another owner has the run.
    Held(Arc<str>),
    /// Its record has lost its tail, up to this event.
    LostTail(LostTail),
    /// There is no such run.
    NoRun,
}

/// The answer of a job, held back until the commit.
pub(crate) enum JobOutput {
    Appended,
    Performed(u64),
    Stored(StoredError),
    Put(ResultId),
    Changed(Changed),
    Sent(Option<RunId>),
    Claimed(Claiming),
    Released,
}

/// Returns the appends if the jobs are nothing else: they are then a single statement, which is its own transaction and
/// needs only one round trip to SQLite's thread.
pub(crate) fn appends_alone(jobs: &[Job]) -> Option<Vec<&Append>> {
    let appends: Option<Vec<&Append>> = jobs.iter().map(Job::append).collect();
    let appends = appends?;
    let rows: usize = appends.iter().map(|append| append.rows()).sum();
    (rows <= MAX_ROWS && !appends.iter().any(|append| append.needs_more())).then_some(appends)
}

impl Job {
    /// Returns the append if the job is one.
    fn append(&self) -> Option<&Append> {
        match self {
            Self::Append(append, _) => Some(append),
            _ => None,
        }
    }

    /// Sends the answer; a caller that is gone is ignored.
    pub(crate) fn answer(self, result: Result<JobOutput, JobError>) {
        match (self, result) {
            (Self::Append(_, answer), Ok(_)) => drop(answer.send(Ok(()))),
            (Self::Append(_, answer), Err(error)) => drop(answer.send(Err(error.into()))),
            (Self::Store(_, answer), Ok(JobOutput::Stored(stored))) => {
                drop(answer.send(Ok(stored)));
            }
            (Self::Store(_, answer), Err(error)) => drop(answer.send(Err(error.into()))),
            (Self::Put(_, answer), Ok(JobOutput::Put(id))) => drop(answer.send(Ok(id))),
            (Self::Put(_, answer), Err(error)) => drop(answer.send(Err(error.into()))),
            (Self::Change(_, answer), Ok(JobOutput::Changed(changed))) => {
                drop(answer.send(Ok(changed)));
            }
            (Self::Change(_, answer), Err(error)) => drop(answer.send(Err(error.into()))),
            (Self::Send(_, answer), Ok(JobOutput::Sent(run))) => drop(answer.send(Ok(run))),
            (Self::Send(_, answer), Err(error)) => drop(answer.send(Err(error.into()))),
            (Self::Claim(_, answer), Ok(JobOutput::Claimed(claim))) => drop(answer.send(Ok(claim))),
            (Self::Claim(_, answer), Err(error)) => drop(answer.send(Err(error.into()))),
            (Self::Chore(_, answer), Ok(JobOutput::Performed(many))) => drop(answer.send(Ok(many))),
            (Self::Chore(_, answer), Err(error)) => drop(answer.send(Err(error.into()))),
            // `transact` answers each job with its own kind; a dropped answer looks like a writer that is gone.
            (
                Self::Store(..)
                | Self::Put(..)
                | Self::Change(..)
                | Self::Send(..)
                | Self::Claim(..)
                | Self::Chore(..),
                Ok(_),
            ) => {}
            (Self::Release(run, _), Err(error)) => {
                let error = LogError::from(error);
                tracing::warn!(%run, %error, "a run could not be freed");
            }
            (Self::Release(..), Ok(_)) => {}
        }
    }
}
