//! The only task that writes; its jobs share commits.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_error_store::{NewError, NewResult, StoreError, StoredError};
use backstop_event_log::{Batch, Claims, Incarnation, LogError, LogKey};
use layer0::error::BoxError;
use layer0::id::{ResultId, RunId};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::append::Append;
use crate::chore::Chore;
use crate::errors::Insert;
use crate::job::{ClaimRequest, Claiming, Job, JobOutput, Queued, appends_alone};
use crate::job_error::JobError;
use crate::lookout::Watches;
use crate::many::MAX_ROWS;
use crate::owner::Owner;
use crate::sent::SubmittedRequest;
use crate::state::{Change, Changed};
use crate::{append, claims, errors, inbox, results, state};

/// Maximum number of jobs in a commit, which bounds the time to the first answer.
const MAX_JOBS: usize = MAX_ROWS;
/// Delay before a release that met another process's lock is retried.
const RELEASE_AGAIN: Duration = Duration::from_millis(500);
/// Maximum number of queued jobs before callers wait.
const QUEUE: usize = 1024;

/// The handle of the writer task; the task ends when the handle is closed or dropped.
#[derive(Debug)]
pub(crate) struct Writer {
    jobs: Mutex<Option<mpsc::UnboundedSender<Queued>>>,
    /// Permits of the queue. Releases on drop need none.
    permits: Arc<Semaphore>,
    task: Mutex<Option<JoinHandle<()>>>,
    /// Number of commits since the start.
    commits: Arc<AtomicU64>,
}

impl Writer {
    /// Starts the task on a connection; `options` open another connection if that one fails beyond repair.
    pub(crate) fn start(
        connection: SqliteConnection,
        options: SqliteConnectOptions,
        claims: Claims,
        owner: Arc<Owner>,
        watches: Watches,
    ) -> Self {
        let commits = Arc::<AtomicU64>::default();
        let counted = Arc::clone(&commits);
        let connection =
            Connected { connection, options, claims, owner, commits: counted, watches };
        let (sender, receiver) = mpsc::unbounded_channel();
        let task = tokio::spawn(run(connection, receiver));
        Self {
            jobs: Mutex::new(Some(sender)),
            permits: Arc::new(Semaphore::new(QUEUE)),
            task: Mutex::new(Some(task)),
            commits,
        }
    }

    /// Returns a function that queues the release of a run after the appends that are already queued, so that it is
    /// free only when they are written. The function does not keep the task alive.
    pub(crate) fn release(&self, run: RunId) -> Option<impl FnOnce(Option<u64>) + use<>> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let jobs = jobs.as_ref().map(mpsc::UnboundedSender::downgrade)?;
        Some(move |epoch| {
            if let Some(jobs) = jobs.upgrade() {
                let _ = jobs.send(Queued::release(Job::Release(run, epoch)));
            }
        })
    }

    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Appends a batch; a new run has this incarnation.
    pub(crate) async fn append(
        &self,
        batch: Batch,
        incarnation: Option<Incarnation>,
        key: Option<&LogKey>,
    ) -> Result<(), LogError> {
        let append = Box::new(Append::new(batch, incarnation, key)?);
        self.ask(|answer| Job::Append(append, answer)).await
    }

    pub(crate) async fn send(&self, sent: SubmittedRequest) -> Result<Option<RunId>, LogError> {
        self.ask(|answer| Job::Send(Box::new(sent), answer)).await
    }

    pub(crate) async fn claim(&self, request: ClaimRequest) -> Result<Claiming, LogError> {
        self.ask(|answer| Job::Claim(Box::new(request), answer)).await
    }

    pub(crate) async fn store(&self, error: NewError) -> Result<StoredError, StoreError> {
        let insert = Box::new(Insert::new(error)?);
        self.ask(|answer| Job::Store(insert, answer)).await
    }

    pub(crate) async fn put(&self, result: NewResult) -> Result<ResultId, StoreError> {
        self.ask(|answer| Job::Put(Box::new(result), answer)).await
    }

    pub(crate) async fn change(&self, change: Change) -> Result<Changed, StoreError> {
        self.ask(|answer| Job::Change(Box::new(change), answer)).await
    }

    /// Performs internal work of the store.
    pub(crate) async fn perform(&self, chore: impl Chore + 'static) -> Result<u64, StoreError> {
        self.perform_shared(Arc::new(chore)).await
    }

    pub(crate) async fn perform_shared(&self, chore: Arc<dyn Chore>) -> Result<u64, StoreError> {
        self.ask(|answer| Job::Chore(chore, answer)).await
    }

    /// Queues a job, and waits until it is written.
    async fn ask<T, E: From<JobError>>(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<T, E>>) -> Job,
    ) -> Result<T, E> {
        let (answer, answered) = oneshot::channel();
        self.submit(job(answer)).await?;
        answered.await.unwrap_or_else(|_| Err(JobError::Lost.into()))
    }

    async fn submit(&self, job: Job) -> Result<(), JobError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let jobs = jobs.as_ref().ok_or(JobError::Closed)?;
        jobs.send(Queued::new(job, permit)).map_err(|_| JobError::Lost)
    }

    /// Closes the queue, and waits until the queued jobs are written.
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

/// The connection, with the options for opening it again.
struct Connected {
    connection: SqliteConnection,
    options: SqliteConnectOptions,
    claims: Claims,
    owner: Arc<Owner>,
    commits: Arc<AtomicU64>,
    watches: Watches,
}

impl Connected {
    /// Releases the remaining claims, and ends the owner.
    async fn leave(&mut self) {
        let held = self.claims.still_held();
        if !held.is_empty()
            && let Ok(owner) = self.owner.id()
        {
            for (run, epoch) in held {
                if claims::free(&mut self.connection, &run, &owner, Some(epoch)).await.is_err() {
                    // The next process that claims the run finds that its owner is gone.
                    break;
                }
            }
        }
        self.owner.leave();
    }

    fn count_commit(&self) {
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a failed transaction. If the database already ended it, as it does when the disk is full, the connection's
    /// transaction count is wrong, and the connection is replaced.
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

async fn run(mut connected: Connected, mut jobs: mpsc::UnboundedReceiver<Queued>) {
    let mut queued = Vec::new();
    // No caller waits for a release, so that a release that met a lock is retried here.
    let mut locked_out: Vec<Job> = Vec::new();
    loop {
        let received = tokio::select! {
            received = jobs.recv_many(&mut queued, MAX_JOBS) => received,
            () = SystemClock.sleep(RELEASE_AGAIN), if !locked_out.is_empty() => 1,
        };
        if received == 0 {
            break;
        }
        // Callers just answered usually send the next job at once; after a yield their jobs share this commit.
        tokio::task::yield_now().await;
        while queued.len() < MAX_JOBS
            && let Ok(job) = jobs.try_recv()
        {
            queued.push(job);
        }
        let mut batch = std::mem::take(&mut locked_out);
        batch.extend(queued.drain(..).map(|queued| queued.job));
        locked_out = commit(&mut connected, batch).await;
    }
    connected.leave().await;
    if let Err(error) = connected.connection.close().await {
        tracing::warn!(%error, "closing the database failed");
    }
}

/// Writes jobs in one transaction. Returns the releases that met a lock.
///
/// If a job fails, all jobs are written again in one transaction, each with its own savepoint, so that a bad row
/// affects no other job and costs no further commit. If that fails as a whole, each job is written alone. All jobs
/// together wait for a lock only once.
async fn commit(connected: &mut Connected, jobs: Vec<Job>) -> Vec<Job> {
    let mut results = match connected.owner.database_holds() {
        true => write_together(connected, &jobs).await,
        false => Vec::new(),
    };
    // Writes to a file without a name would be lost.
    if !connected.owner.database_holds() {
        let path = connected.owner.database().unwrap_or(Path::new(""));
        results = jobs.iter().map(|_| Err(JobError::Moved(path.to_owned()))).collect();
    }
    answer_all(connected, jobs, results)
}

async fn write_together(
    connected: &mut Connected,
    jobs: &[Job],
) -> Vec<Result<JobOutput, JobError>> {
    match transact(connected, jobs).await {
        Ok(done) => done.into_iter().map(Ok).collect(),
        Err(error) if error.is_locked() => locked_results(jobs.len()),
        Err(error) if jobs.len() == 1 => vec![Err(error)],
        Err(_) => transact_each(connected, jobs).await,
    }
}

fn answer_all(
    connected: &Connected,
    jobs: Vec<Job>,
    results: Vec<Result<JobOutput, JobError>>,
) -> Vec<Job> {
    let mut locked_out = Vec::new();
    let mut has_events = false;
    for (job, result) in jobs.into_iter().zip(results) {
        if let (Job::Append(append, _), Ok(_)) = (&job, &result) {
            has_events |= append.rows() > 0;
            if let Some(run) = append.frees() {
                connected.claims.mark_released(run);
            }
        }
        // Done here and not when the answer is sent: a caller that no longer waits has sent the request too.
        if let Ok(JobOutput::Sent(Some(run))) = &result {
            connected.watches.inboxes.ring(run);
        }
        match &job {
            Job::Release(..) if result.as_ref().is_err_and(JobError::is_locked) => {
                locked_out.push(job);
            }
            _ => job.answer(result),
        }
    }
    if has_events {
        connected.watches.events.ring();
    }
    locked_out
}

async fn transact(connected: &mut Connected, jobs: &[Job]) -> Result<Vec<JobOutput>, JobError> {
    if let Some(appends) = appends_alone(jobs) {
        append::write_rows(&mut connected.connection, &appends).await?;
        connected.count_commit();
        return Ok(jobs.iter().map(|_| JobOutput::Appended).collect());
    }
    let owner = owner(connected, jobs).await?;
    let result = async {
        let mut transaction = connected.connection.begin_with("BEGIN IMMEDIATE").await?;
        let done = write(&mut transaction, jobs, &owner).await?;
        transaction.commit().await?;
        Ok(done)
    };
    let result = result.await;
    match &result {
        Ok(_) => connected.count_commit(),
        Err(_) => connected.recover().await,
    }
    result
}

fn locked_results(jobs: usize) -> Vec<Result<JobOutput, JobError>> {
    std::iter::repeat_with(|| Err(JobError::Locked)).take(jobs).collect()
}

/// Writes jobs in one transaction, without those that fail.
async fn transact_each(
    connected: &mut Connected,
    jobs: &[Job],
) -> Vec<Result<JobOutput, JobError>> {
    match write_each(connected, jobs).await {
        Ok(results) => {
            connected.count_commit();
            results
        }
        Err(error) if error.is_locked() => {
            connected.recover().await;
            locked_results(jobs.len())
        }
        Err(_) => {
            connected.recover().await;
            transact_alone(connected, jobs).await
        }
    }
}

/// Writes each job in its own transaction. When the disk is full, the database ends a shared transaction, and it is
/// unknown which of the jobs does not fit.
async fn transact_alone(
    connected: &mut Connected,
    jobs: &[Job],
) -> Vec<Result<JobOutput, JobError>> {
    let mut results = Vec::with_capacity(jobs.len());
    for job in jobs {
        let done = transact(connected, std::slice::from_ref(job)).await;
        let is_locked = done.as_ref().is_err_and(JobError::is_locked);
        results.push(done.and_then(|mut done| done.pop().ok_or_else(JobError::no_answer)));
        if is_locked {
            results.extend(locked_results(jobs.len() - results.len()));
            break;
        }
    }
    results
}

async fn write_each(
    connected: &mut Connected,
    jobs: &[Job],
) -> Result<Vec<Result<JobOutput, JobError>>, JobError> {
    let mut results = Vec::with_capacity(jobs.len());
    let owner = owner(connected, jobs).await?;
    let mut transaction = connected.connection.begin_with("BEGIN IMMEDIATE").await?;
    for job in jobs {
        let mut savepoint = transaction.begin().await?;
        match write(&mut savepoint, std::slice::from_ref(job), &owner).await {
            Ok(mut done) => {
                savepoint.commit().await?;
                results.push(done.pop().ok_or_else(JobError::no_answer));
            }
            Err(error) => {
                // A full disk ends the whole transaction, so that this fails.
                savepoint.rollback().await?;
                results.push(Err(error));
            }
        }
    }
    transaction.commit().await?;
    Ok(results)
}

/// Returns the id of the owner if a job needs it: its file is created for the first such job.
async fn owner(connected: &Connected, jobs: &[Job]) -> Result<Arc<str>, JobError> {
    let needs = |job: &Job| match job {
        Job::Append(append, _) => append.begins(),
        Job::Claim(..) | Job::Release(..) => true,
        _ => false,
    };
    if !jobs.iter().any(needs) {
        return Ok("".into());
    }
    let claimed = jobs.iter().filter_map(|job| match job {
        Job::Claim(request, _) => Some(request.run.clone()),
        _ => None,
    });
    let claimed: Vec<RunId> = claimed.collect();
    let (owner, claims) = (Arc::clone(&connected.owner), connected.claims.clone());
    let id = tokio::task::spawn_blocking(move || owner.id_asking(&claims, &claimed)).await;
    let failed = |error: BoxError| JobError::Log(LogError::Failed(error));
    id.map_err(|error| failed(error.into()))?.map_err(|error| failed(error.into()))
}

/// Writes appends, errors and state together, then the rest one by one. No caller was answered yet, so that the jobs
/// may be written in any order, except releases, which follow the appends queued before them.
async fn write(
    connection: &mut SqliteConnection,
    jobs: &[Job],
    owner: &str,
) -> Result<Vec<JobOutput>, JobError> {
    let (mut appends, mut inserts, mut changes) = (Vec::new(), Vec::new(), Vec::new());
    for job in jobs {
        match job {
            Job::Append(append, _) => appends.push(&**append),
            Job::Store(insert, _) => inserts.push(&**insert),
            Job::Change(change, _) => changes.push(&**change),
            _ => {}
        }
    }
    append::write(connection, &appends, owner).await?;
    let mut stored = errors::write(connection, &inserts).await?.into_iter();
    let mut changed = state::write(connection, &changes).await?.into_iter();
    let mut done = Vec::with_capacity(jobs.len());
    for job in jobs {
        done.push(match job {
            Job::Append(..) => JobOutput::Appended,
            Job::Store(..) => JobOutput::Stored(stored.next().ok_or_else(JobError::no_answer)?),
            Job::Change(..) => JobOutput::Changed(changed.next().ok_or_else(JobError::no_answer)?),
            Job::Put(result, _) => JobOutput::Put(results::write(connection, result).await?),
            Job::Chore(chore, _) => JobOutput::Performed(chore.perform(connection).await?),
            Job::Send(sent, _) => JobOutput::Sent(inbox::insert(connection, sent).await?),
            Job::Claim(request, _) => {
                JobOutput::Claimed(claims::take(connection, request, owner).await?)
            }
            Job::Release(run, epoch) => {
                claims::free(connection, run, owner, *epoch).await?;
                JobOutput::Released
            }
        });
    }
    Ok(done)
}

#[cfg(test)]
mod tests;
