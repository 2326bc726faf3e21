//! Hearing of what other processes write.
//!
//! Each process tells the others that it wrote, at most once in a while and never inside of an append: what is told
//! says only that there may be something new, and everything is read by its place again. A message that is lost
//! delays: the database is looked at anyway, less often.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{EventWatches, InboxWatches};
use layer0::id::RunId;
use sqlx::postgres::PgListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::fault::Fault;
use crate::pool::Pool;

/// The channel of `LISTEN` and `NOTIFY`.
const CHANNEL: &str = "backstop";
/// The same for the queue.
pub(crate) const QUEUE_CHANNEL: &str = "backstop_queue";
/// How often this process tells others at most.
const TELL_EVERY: Duration = Duration::from_millis(50);
/// How often the database is looked at, told or not.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long is waited before a listener that was lost is started again.
const RECONNECT: Duration = Duration::from_millis(500);

/// Who waits for something new in the database. Clones share the watches.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watches {
    pub(crate) inboxes: InboxWatches,
    pub(crate) events: EventWatches,
}

/// The mark of the task that listens. It is removed with the task, even if the runtime of the task ends.
struct ListenMark(Arc<AtomicBool>);

impl ListenMark {
    /// Sets the mark; `None` if another task has set it.
    fn set(is_looking: &Arc<AtomicBool>) -> Option<Self> {
        let is_set = is_looking.swap(true, Ordering::AcqRel);
        (!is_set).then(|| Self(Arc::clone(is_looking)))
    }
}

impl Drop for ListenMark {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Watches {
    fn are_empty(&self) -> bool {
        self.inboxes.is_empty() && self.events.is_empty()
    }
}

/// Looks for what other processes write, while something is watched, and tells them what this one writes.
#[derive(Debug, Default)]
pub(crate) struct Lookout {
    pub(crate) watches: Watches,
    pub(crate) wrote: Arc<Notify>,
    /// Was a run put into the queue, which others are not told of?
    has_queued: Arc<AtomicBool>,
    is_looking: Arc<AtomicBool>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// The rows of inboxes that could not be read.
    unreadable: Mutex<BTreeSet<i64>>,
}

impl Lookout {
    /// Says that a row of an inbox cannot be read, the first time it is not.
    pub(crate) fn warn_once(&self, run: &RunId, row: i64) {
        let mut known = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        if known.insert(row) {
            tracing::warn!(%run, row, "a row of the inbox cannot be read; the run goes on without it");
        }
    }

    /// Tells other processes from now on what this one writes.
    pub(crate) fn tell(&self, pool: &Pool) {
        let (pool, wrote) = (pool.clone(), Arc::clone(&self.wrote));
        let has_queued = Arc::clone(&self.has_queued);
        self.own(tokio::spawn(async move {
            loop {
                wrote.notified().await;
                let told = match has_queued.swap(false, Ordering::AcqRel) {
                    true => notify(&pool, QUEUE_CHANNEL).await,
                    false => Ok(()),
                };
                match told.and(notify(&pool, CHANNEL).await) {
                    Err(Fault::Closed) => return,
                    Err(fault) => {
                        tracing::debug!(?fault, "others are not told of what was written");
                    }
                    Ok(()) => {}
                }
                SystemClock.sleep(TELL_EVERY).await;
            }
        }));
    }

    /// Says that a run was put into the queue.
    pub(crate) fn ring_queue(&self) {
        self.has_queued.store(true, Ordering::Release);
        self.wrote.notify_one();
    }

    /// Looks from now on, until nothing is watched any more.
    pub(crate) fn look(&self, pool: &Pool) {
        let Some(mark) = ListenMark::set(&self.is_looking) else { return };
        let (watches, pool) = (self.watches.clone(), pool.clone());
        let is_looking = Arc::clone(&self.is_looking);
        let mut mark = Some(mark);
        self.own(tokio::spawn(async move {
            let mut listener = None;
            // A database that is closed is waited for no more.
            while pool.until_closed(hear(&pool, &mut listener)).await.is_some() {
                if watches.are_empty() {
                    drop(mark.take());
                    // What was watched meanwhile found the task still looking.
                    if !watches.are_empty() {
                        mark = ListenMark::set(&is_looking);
                    }
                    if mark.is_none() {
                        return;
                    }
                }
                watches.events.ring();
                if let Err(fault) = ring_inboxes(&pool, &watches).await {
                    tracing::debug!(?fault, "the database cannot be read just now");
                }
            }
        }));
    }

    /// Stops what is at work in the background.
    pub(crate) async fn stop(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            task.abort();
            // It ends at its next await; that it was aborted is no failure.
            let _ = task.await;
        }
    }

    fn own(&self, task: JoinHandle<()>) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Waits until others tell of something, or until it is time to look anyway.
async fn hear(pool: &Pool, listener: &mut Option<PgListener>) {
    let told = async {
        if listener.is_none() {
            *listener = pool.listener(CHANNEL).await;
        }
        match listener {
            Some(heard) => {
                // One whose connection was lost answers `None`, and what was told meanwhile is lost with it.
                if !matches!(heard.try_recv().await, Ok(Some(_))) {
                    *listener = None;
                }
            }
            None => SystemClock.sleep(RECONNECT).await,
        }
    };
    tokio::select! {
        () = told => {}
        () = SystemClock.sleep(LOOK_EVERY) => {}
    }
}

async fn notify(pool: &Pool, channel: &str) -> Result<(), Fault> {
    let mut lent = pool.lend().await?;
    sqlx::query("SELECT pg_notify($1, '')").bind(channel).execute(&mut *lent).await?;
    lent.end().await
}

/// Rings for the runs that have requests.
async fn ring_inboxes(pool: &Pool, watches: &Watches) -> Result<(), Fault> {
    if watches.inboxes.is_empty() {
        return Ok(());
    }
    let runs = sqlx::query_scalar::<_, String>("SELECT DISTINCT run FROM backstop.inbox");
    for run in runs.fetch_all(&mut *pool.lend().await?).await? {
        watches.inboxes.ring(&crate::text::read(run).into());
    }
    Ok(())
}
