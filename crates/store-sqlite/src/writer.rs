//! The one task that writes, and how it shares commits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use error_store::{
    ErrorRecord, NewError, NewResult, Pruned, ResultRecord, Retention, StoreError, Stored,
};
use event_log::{Batch, Decision, LogError};
use layer0::Timestamp;
use layer0::id::{ApprovalId, ResultId};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::append::Append;
use crate::errors::Insert;
use crate::fault::Fault;
use crate::many::MAX_ROWS;
use crate::{append, approvals, errors, results};

/// How many jobs share one commit at most; bounds the time to the first answer.
const MAX_JOBS: usize = MAX_ROWS;
/// How often errors are pruned in the background, at most.
const PRUNE_EVERY: Duration = Duration::from_secs(600);
/// How many jobs wait before callers have to.
const QUEUE: usize = 1024;

/// Something to write, and where the answer goes.
enum Job {
    Append(Box<Append>, oneshot::Sender<Result<(), LogError>>),
    Store(Box<Insert>, oneshot::Sender<Result<Stored, StoreError>>),
    Put(Box<NewResult>, oneshot::Sender<Result<ResultId, StoreError>>),
    Keep(Kept, oneshot::Sender<Result<(), StoreError>>),
    Prune(Retention, Timestamp, oneshot::Sender<Result<Pruned, StoreError>>),
    Decide(ApprovalId, Decision, oneshot::Sender<Result<bool, LogError>>),
}

/// What comes from another store, with its id.
pub(crate) enum Kept {
    Error(Box<ErrorRecord>),
    Result(Box<ResultRecord>),
}

/// A job's answer, held back until the commit.
enum Done {
    Kept,
    Appended,
    Stored(Stored),
    Put(ResultId),
    Pruned(Pruned),
    Decided(bool),
}

/// Why a job failed inside a transaction.
pub(crate) enum JobError {
    Log(LogError),
    Store(StoreError),
    Database(sqlx::Error),
}

impl From<JobError> for LogError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Log(error) => error,
            JobError::Store(error) => Self::Failed(error.into()),
            JobError::Database(error) => Fault::from(error).into(),
        }
    }
}

impl From<JobError> for StoreError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Store(error) => error,
            JobError::Log(error) => Self::Failed(error.into()),
            JobError::Database(error) => Fault::from(error).into(),
        }
    }
}

impl From<sqlx::Error> for JobError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

/// The handle of the writer task; the task ends when the handle is closed or dropped.
#[derive(Debug)]
pub(crate) struct Writer {
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    task: Mutex<Option<JoinHandle<()>>>,
    /// How many there were since the start.
    commits: Arc<AtomicU64>,
}

impl Writer {
    /// Starts the task on a connection; `options` open another one when that is beyond repair.
    pub(crate) fn start(
        connection: SqliteConnection,
        options: SqliteConnectOptions,
        retention: Retention,
    ) -> Self {
        let commits = Arc::default();
        let connection = Connected { connection, options, commits: Arc::clone(&commits) };
        let (sender, receiver) = mpsc::channel(QUEUE);
        let task = tokio::spawn(run(connection, receiver, Keeper { retention, pruned_at: None }));
        Self { jobs: Mutex::new(Some(sender)), task: Mutex::new(Some(task)), commits }
    }

    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    pub(crate) async fn append(&self, batch: Batch) -> Result<(), LogError> {
        let append = Box::new(Append::new(batch)?);
        let (answer, answered) = oneshot::channel();
        self.submit(Job::Append(append, answer)).await.ok_or(LogError::Closed)?;
        answered.await.unwrap_or(Err(LogError::Closed))
    }

    pub(crate) async fn decide(
        &self,
        id: ApprovalId,
        decision: Decision,
    ) -> Result<bool, LogError> {
        let (answer, answered) = oneshot::channel();
        self.submit(Job::Decide(id, decision, answer)).await.ok_or(LogError::Closed)?;
        answered.await.unwrap_or(Err(LogError::Closed))
    }

    pub(crate) async fn store(&self, error: NewError) -> Result<Stored, StoreError> {
        let insert = Box::new(Insert::new(error)?);
        let (answer, answered) = oneshot::channel();
        self.submit(Job::Store(insert, answer)).await.ok_or(StoreError::Closed)?;
        answered.await.unwrap_or(Err(StoreError::Closed))
    }

    pub(crate) async fn put(&self, result: NewResult) -> Result<ResultId, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.submit(Job::Put(Box::new(result), answer)).await.ok_or(StoreError::Closed)?;
        answered.await.unwrap_or(Err(StoreError::Closed))
    }

    pub(crate) async fn keep(&self, kept: Kept) -> Result<(), StoreError> {
        let (answer, answered) = oneshot::channel();
        self.submit(Job::Keep(kept, answer)).await.ok_or(StoreError::Closed)?;
        answered.await.unwrap_or(Err(StoreError::Closed))
    }

    pub(crate) async fn prune(
        &self,
        retention: Retention,
        now: Timestamp,
    ) -> Result<Pruned, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.submit(Job::Prune(retention, now, answer)).await.ok_or(StoreError::Closed)?;
        answered.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Queues a job; `None` when the writer is closed.
    async fn submit(&self, job: Job) -> Option<()> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        jobs.send(job).await.ok()
    }

    /// Takes no more jobs, and waits until those queued are written.
    pub(crate) async fn close(&self) {
        drop(self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take());
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task
            && let Err(error) = task.await
        {
            tracing::error!(%error, "the writer task was lost");
        }
    }
}

/// Prunes in the background. The time is that of the errors stored, so that it needs no clock.
struct Keeper {
    retention: Retention,
    pruned_at: Option<Timestamp>,
}

impl Keeper {
    /// Returns when to prune, if it is time after these jobs.
    fn due(&mut self, jobs: &[Job]) -> Option<Timestamp> {
        let stored = |job: &Job| match job {
            Job::Store(insert, _) => Some(insert.at()),
            Job::Put(result, _) => Some(result.at),
            Job::Append(..) | Job::Decide(..) | Job::Keep(..) | Job::Prune(..) => None,
        };
        let now = jobs.iter().filter_map(stored).max()?;
        if self.pruned_at.is_some_and(|last| now.since(last) < PRUNE_EVERY) {
            return None;
        }
        self.pruned_at = Some(now);
        Some(now)
    }
}

/// The connection, and how to open it again.
struct Connected {
    connection: SqliteConnection,
    options: SqliteConnectOptions,
    commits: Arc<AtomicU64>,
}

impl Connected {
    fn count_commit(&self) {
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a failed transaction. When the database ended it already, as it does when the disk is
    /// full, the connection has lost count and is replaced.
    async fn recover(&mut self) {
        let sound = match self.connection.begin_with("BEGIN").await {
            Ok(transaction) => transaction.rollback().await.is_ok(),
            Err(_) => false,
        };
        if sound {
            return;
        }
        match self.options.connect().await {
            Ok(connection) => self.connection = connection,
            Err(error) => tracing::warn!(%error, "the database cannot be opened again"),
        }
    }
}

async fn run(mut connected: Connected, mut jobs: mpsc::Receiver<Job>, mut keeper: Keeper) {
    let mut batch = Vec::new();
    while jobs.recv_many(&mut batch, MAX_JOBS).await > 0 {
        // Those just answered come back at once; with a turn for them they share this commit.
        tokio::task::yield_now().await;
        while batch.len() < MAX_JOBS
            && let Ok(job) = jobs.try_recv()
        {
            batch.push(job);
        }
        let due = keeper.due(&batch);
        commit(&mut connected, std::mem::take(&mut batch)).await;
        if let Some(now) = due {
            let connection = &mut connected.connection;
            match results::expire(connection, keeper.retention, now).await {
                Ok(()) => connected.count_commit(),
                Err(_) => tracing::warn!("taking results away failed; it is tried again later"),
            }
            let connection = &mut connected.connection;
            match errors::prune(connection, keeper.retention, now).await {
                Ok(Pruned { rows, bytes }) => {
                    connected.count_commit();
                    if rows > 0 {
                        tracing::info!(rows, bytes, "errors pruned");
                    }
                }
                Err(_) => tracing::warn!("pruning errors failed; it is tried again later"),
            }
        }
    }
    if let Err(error) = connected.connection.close().await {
        tracing::warn!(%error, "closing the database failed");
    }
}

/// Writes jobs in one transaction. If one fails, each is written in a transaction of its own, so
/// that a bad row takes nobody else with it.
async fn commit(connected: &mut Connected, jobs: Vec<Job>) {
    match transact(connected, &jobs).await {
        Ok(done) => jobs.into_iter().zip(done).for_each(|(job, done)| job.answer(Ok(done))),
        Err(_) if jobs.len() > 1 => {
            for job in jobs {
                let result = transact(connected, std::slice::from_ref(&job)).await;
                job.answer(result.map(|mut done| done.remove(0)));
            }
        }
        Err(error) => {
            if let Some(job) = jobs.into_iter().next() {
                job.answer(Err(error));
            }
        }
    }
}

async fn transact(connected: &mut Connected, jobs: &[Job]) -> Result<Vec<Done>, JobError> {
    let result = write(&mut connected.connection, jobs).await;
    match &result {
        Ok(_) => connected.count_commit(),
        Err(_) => connected.recover().await,
    }
    result
}

/// Writes appends and errors together, then the rest one by one. Nobody was answered yet, so the
/// jobs may be written in any order.
async fn write(connection: &mut SqliteConnection, jobs: &[Job]) -> Result<Vec<Done>, JobError> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let (mut appends, mut inserts) = (Vec::new(), Vec::new());
    for job in jobs {
        match job {
            Job::Append(append, _) => appends.push(&**append),
            Job::Store(insert, _) => inserts.push(&**insert),
            Job::Put(..) | Job::Decide(..) | Job::Keep(..) | Job::Prune(..) => {}
        }
    }
    append::write(&mut transaction, &appends).await?;
    let mut stored = errors::write(&mut transaction, &inserts).await?.into_iter();
    let mut done = Vec::with_capacity(jobs.len());
    for job in jobs {
        done.push(match job {
            Job::Append(..) => Done::Appended,
            Job::Store(..) => Done::Stored(stored.next().ok_or_else(no_answer)?),
            Job::Put(result, _) => Done::Put(results::write(&mut transaction, result).await?),
            Job::Keep(kept, _) => {
                match kept {
                    Kept::Error(error) => errors::keep(&mut transaction, error).await?,
                    Kept::Result(result) => results::keep(&mut transaction, result).await?,
                }
                Done::Kept
            }
            Job::Decide(id, decision, _) => {
                Done::Decided(approvals::decide(&mut transaction, id, decision).await?)
            }
            Job::Prune(retention, now, _) => {
                results::expire(&mut transaction, *retention, *now).await?;
                Done::Pruned(errors::prune(&mut transaction, *retention, *now).await?)
            }
        });
    }
    transaction.commit().await?;
    Ok(done)
}

fn no_answer() -> JobError {
    JobError::Store(StoreError::Failed("an error was stored without an answer".into()))
}

impl Job {
    /// Answers; a caller that is gone does not mind.
    fn answer(self, result: Result<Done, JobError>) {
        match (self, result) {
            (Self::Append(_, answer), Ok(_)) => drop(answer.send(Ok(()))),
            (Self::Append(_, answer), Err(error)) => drop(answer.send(Err(error.into()))),
            (Self::Store(_, answer), Ok(Done::Stored(stored))) => drop(answer.send(Ok(stored))),
            (Self::Store(_, answer), Err(error)) => drop(answer.send(Err(error.into()))),
            (Self::Put(_, answer), Ok(Done::Put(id))) => drop(answer.send(Ok(id))),
            (Self::Put(_, answer), Err(error)) => drop(answer.send(Err(error.into()))),
            (Self::Decide(_, _, answer), Ok(Done::Decided(new))) => drop(answer.send(Ok(new))),
            (Self::Decide(_, _, answer), Err(error)) => drop(answer.send(Err(error.into()))),
            (Self::Keep(_, answer), Ok(_)) => drop(answer.send(Ok(()))),
            (Self::Keep(_, answer), Err(error)) => drop(answer.send(Err(error.into()))),
            (Self::Prune(_, _, answer), Ok(Done::Pruned(pruned))) => drop(answer.send(Ok(pruned))),
            (Self::Prune(_, _, answer), Err(error)) => drop(answer.send(Err(error.into()))),
            // `transact` answers each job with its own kind; a dropped answer reads as closed.
            (Self::Store(..) | Self::Put(..) | Self::Decide(..) | Self::Prune(..), Ok(_)) => {}
        }
    }
}
