//! The tasks that append. Each run belongs to one of them, so that its appends stay in order.

mod job;
mod lane;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use backstop_event_log::{Batch, Incarnation, LogError, LogKey};
use layer0::id::RunId;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::append::Append;
use crate::fault::LOST;

pub(crate) use self::job::WriterSetup;
use self::job::{Job, Queued};
use self::lane::Lane;

/// Number of tasks that append, each with its own connection: while the server writes for one, the other collects its
/// next appends.
const LANES: usize = 2;
/// Maximum number of queued appends before callers wait.
const QUEUE: usize = 1024;

type Jobs = mpsc::UnboundedSender<Queued>;

/// The handle of the writer tasks; they end when the handle is closed or dropped.
#[derive(Debug)]
pub(crate) struct Writer {
    /// `None` once it is closed.
    lanes: Mutex<Option<[Jobs; LANES]>>,
    /// Permits of the queues. Releases on drop need none.
    permits: Arc<Semaphore>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    commits: Arc<AtomicU64>,
}

impl Writer {
    /// Starts the tasks. They connect when there is something to write.
    pub(crate) fn start(setup: WriterSetup) -> Self {
        let (setup, commits) = (Arc::new(setup), Arc::<AtomicU64>::default());
        let mut tasks = Vec::new();
        let lanes = std::array::from_fn(|_| {
            let (sender, receiver) = mpsc::unbounded_channel();
            let lane = Lane::new(Arc::clone(&setup), Arc::clone(&commits));
            tasks.push(tokio::spawn(lane.run(receiver)));
            sender
        });
        Self {
            lanes: Mutex::new(Some(lanes)),
            permits: Arc::new(Semaphore::new(QUEUE)),
            tasks: Mutex::new(tasks),
            commits,
        }
    }

    /// Returns a function that queues the release of a run after the appends that are already queued, so that it is
    /// free only when they are written. The function does not keep the tasks alive.
    pub(crate) fn release(&self, run: RunId) -> Option<impl FnOnce(Option<u64>) + use<>> {
        let jobs = self.find_jobs(&run)?.downgrade();
        Some(move |epoch| {
            if let Some(jobs) = jobs.upgrade() {
                let _ = jobs.send(Queued { job: Job::Release(run, epoch), _permit: None });
            }
        })
    }

    /// Returns the queue of a run's jobs.
    fn find_jobs(&self, run: &RunId) -> Option<Jobs> {
        let mut hasher = DefaultHasher::new();
        run.hash(&mut hasher);
        let lane = usize::try_from(hasher.finish() % LANES as u64).unwrap_or_default();
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.as_ref()?.get(lane).cloned()
    }

    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Appends a batch, and waits until it is written; a new run has this incarnation.
    pub(crate) async fn append(
        &self,
        batch: Batch,
        incarnation: Option<Incarnation>,
        key: Option<&LogKey>,
    ) -> Result<(), LogError> {
        let append = Box::new(Append::new(batch, incarnation, key)?);
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        let (answer, answered) = oneshot::channel();
        let lost = || LogError::Failed(LOST.into());
        let jobs = self.find_jobs(append.run()).ok_or(LogError::Closed)?;
        let job = Job::Append(append, answer);
        jobs.send(Queued { job, _permit: permit }).map_err(|_| lost())?;
        drop(jobs);
        answered.await.unwrap_or_else(|_| Err(lost()))
    }

    /// Closes the queues, and waits until the queued jobs are written.
    pub(crate) async fn close(&self) {
        drop(self.lanes.lock().unwrap_or_else(PoisonError::into_inner).take());
        let tasks: Vec<_> =
            self.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect();
        for task in tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task that writes was lost");
            }
        }
    }
}
