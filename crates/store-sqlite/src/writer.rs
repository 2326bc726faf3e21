//! The one task that writes, and how it shares commits.

use std::sync::{Mutex, PoisonError};

use error_store::{NewError, StoreError, Stored};
use event_log::{Batch, LogError};
use sqlx::{Connection, SqliteConnection};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::fault::Fault;
use crate::{errors, log};

/// How many jobs share one commit at most; bounds the time to the first answer.
const MAX_JOBS: usize = 256;
/// How many jobs wait before callers have to.
const QUEUE: usize = 1024;

/// Something to write, and where the answer goes.
enum Job {
    Append(Box<Batch>, oneshot::Sender<Result<(), LogError>>),
    Store(Box<NewError>, oneshot::Sender<Result<Stored, StoreError>>),
}

/// A job's answer, held back until the commit.
enum Done {
    Appended,
    Stored(Stored),
}

/// Why a job failed inside a transaction.
pub(crate) enum JobError {
    Log(LogError),
    Store(StoreError),
    Database(sqlx::Error),
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
}

impl Writer {
    pub(crate) fn start(connection: SqliteConnection) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let task = tokio::spawn(run(connection, receiver));
        Self { jobs: Mutex::new(Some(sender)), task: Mutex::new(Some(task)) }
    }

    pub(crate) async fn append(&self, batch: Batch) -> Result<(), LogError> {
        let (answer, answered) = oneshot::channel();
        self.submit(Job::Append(Box::new(batch), answer)).await.ok_or(LogError::Closed)?;
        answered.await.unwrap_or(Err(LogError::Closed))
    }

    pub(crate) async fn store(&self, error: NewError) -> Result<Stored, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.submit(Job::Store(Box::new(error), answer)).await.ok_or(StoreError::Closed)?;
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

async fn run(mut connection: SqliteConnection, mut jobs: mpsc::Receiver<Job>) {
    let mut batch = Vec::new();
    while jobs.recv_many(&mut batch, MAX_JOBS).await > 0 {
        commit(&mut connection, std::mem::take(&mut batch)).await;
    }
    if let Err(error) = connection.close().await {
        tracing::warn!(%error, "closing the database failed");
    }
}

/// Writes jobs in one transaction. If one fails, each is written in a transaction of its own, so
/// that a bad row takes nobody else with it.
async fn commit(connection: &mut SqliteConnection, jobs: Vec<Job>) {
    match transact(connection, &jobs).await {
        Ok(done) => jobs.into_iter().zip(done).for_each(|(job, done)| job.answer(Ok(done))),
        Err(_) if jobs.len() > 1 => {
            for job in jobs {
                let result = transact(connection, std::slice::from_ref(&job)).await;
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

async fn transact(connection: &mut SqliteConnection, jobs: &[Job]) -> Result<Vec<Done>, JobError> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let mut done = Vec::with_capacity(jobs.len());
    for job in jobs {
        done.push(match job {
            Job::Append(batch, _) => {
                log::write(&mut transaction, batch).await?;
                Done::Appended
            }
            Job::Store(error, _) => Done::Stored(errors::write(&mut transaction, error).await?),
        });
    }
    transaction.commit().await?;
    Ok(done)
}

impl Job {
    /// Answers; a caller that is gone does not mind.
    fn answer(self, result: Result<Done, JobError>) {
        match self {
            Self::Append(_, answer) => {
                let _ = answer.send(match result {
                    Ok(_) => Ok(()),
                    Err(JobError::Log(error)) => Err(error),
                    Err(JobError::Database(error)) => Err(Fault::from(error).into()),
                    Err(JobError::Store(error)) => Err(LogError::Failed(error.into())),
                });
            }
            Self::Store(_, answer) => {
                let _ = answer.send(match result {
                    Ok(Done::Stored(stored)) => Ok(stored),
                    Ok(Done::Appended) => Err(StoreError::Closed),
                    Err(JobError::Store(error)) => Err(error),
                    Err(JobError::Database(error)) => Err(Fault::from(error).into()),
                    Err(JobError::Log(error)) => Err(StoreError::Failed(error.into())),
                });
            }
        }
    }
}
