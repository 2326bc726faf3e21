//! Detection of writes of other processes.
//!
//! Each process notifies the others of its writes, at a limited rate and never in an append. A notification only means
//! that there may be news; readers read everything by its place. A lost notification causes only a delay, because the
//! database is polled too, less often.

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
use crate::pool::ConnectionPool;

/// The channel of `LISTEN` and `NOTIFY`.
const CHANNEL: &str = "backstop";
/// The channel of the queue.
pub(crate) const QUEUE_CHANNEL: &str = "backstop_queue";
/// Minimum interval between notifications of this process.
const TELL_EVERY: Duration = Duration::from_millis(50);
/// Interval between polls without a notification.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Delay before a lost listener is started again.
const RECONNECT: Duration = Duration::from_millis(500);

/// Watches of the database. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watches {
    pub(crate) inboxes: InboxWatches,
    pub(crate) events: EventWatches,
}

/// Flag of the listening task. It is cleared with the task, even if the task's runtime ends.
struct ListenMark(Arc<AtomicBool>);

impl ListenMark {
    /// Sets the flag; `None` if another task has set it.
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

/// Detects writes of other processes while there is a watch, and notifies them of writes of this process.
#[derive(Debug, Default)]
pub(crate) struct Lookout {
    pub(crate) watches: Watches,
    pub(crate) wrote: Arc<Notify>,
    /// Whether a run was enqueued and other processes were not notified yet.
    has_queued: Arc<AtomicBool>,
    is_looking: Arc<AtomicBool>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// Rows of inboxes that could not be read.
    unreadable: Mutex<BTreeSet<i64>>,
}

impl Lookout {
    /// Logs that a row of an inbox cannot be read, the first time only.
    pub(crate) fn warn_once(&self, run: &RunId, row: i64) {
        let mut known = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        if known.insert(row) {
            tracing::warn!(%run, row, "a row of the inbox cannot be read; the run goes on without it");
        }
    }

    /// Notifies other processes of this process's writes from now on.
    pub(crate) fn tell(&self, pool: &ConnectionPool) {
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

    /// Requests a notification that a run was enqueued.
    pub(crate) fn ring_queue(&self) {
        self.has_queued.store(true, Ordering::Release);
        self.wrote.notify_one();
    }

    /// Listens and polls until there is no watch any more.
    pub(crate) fn look(&self, pool: &ConnectionPool) {
        let Some(mark) = ListenMark::set(&self.is_looking) else { return };
        let (watches, pool) = (self.watches.clone(), pool.clone());
        let is_looking = Arc::clone(&self.is_looking);
        let mut mark = Some(mark);
        self.own(tokio::spawn(async move {
            let mut listener = None;
            // A closed database ends the wait.
            while pool.until_closed(hear(&pool, &mut listener)).await.is_some() {
                if watches.are_empty() {
                    drop(mark.take());
                    // A watch added in the meantime found this task still running.
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

    /// Stops the background tasks.
    pub(crate) async fn stop(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            task.abort();
            // The task ends at its next await; an abort is not a failure.
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

/// Waits until another process sends a notification, or until the next poll is due.
async fn hear(pool: &ConnectionPool, listener: &mut Option<PgListener>) {
    let told = async {
        if listener.is_none() {
            *listener = pool.listener(CHANNEL).await;
        }
        match listener {
            Some(heard) => {
                // A listener whose connection was lost returns `None`, and may have missed notifications.
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

async fn notify(pool: &ConnectionPool, channel: &str) -> Result<(), Fault> {
    let mut lent = pool.lend().await?;
    sqlx::query("SELECT pg_notify($1, '')").bind(channel).execute(&mut *lent).await?;
    lent.end().await
}

/// Wakes the runs that have requests.
async fn ring_inboxes(pool: &ConnectionPool, watches: &Watches) -> Result<(), Fault> {
    if watches.inboxes.is_empty() {
        return Ok(());
    }
    let runs = sqlx::query_scalar::<_, String>("SELECT DISTINCT run FROM backstop.inbox");
    for run in runs.fetch_all(&mut *pool.lend().await?).await? {
        watches.inboxes.ring(&crate::text::read(run).into());
    }
    Ok(())
}
