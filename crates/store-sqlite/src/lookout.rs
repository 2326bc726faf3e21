//! Polls for writes of other processes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::{EventWatches, InboxWatches};
use layer0::id::RunId;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::SqlitePool;
use sqlx::{Sqlite, SqliteConnection};
use tokio::task::JoinHandle;

/// Interval between polls for writes of another process, for all watches together.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Watches of the database. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watches {
    pub(crate) inboxes: InboxWatches,
    pub(crate) events: EventWatches,
}

/// Polls for writes of other processes while there is a watch. Writes of this process are signalled by its writer.
#[derive(Debug, Default)]
pub(crate) struct Lookout {
    pub(crate) watches: Watches,
    is_looking: Arc<AtomicBool>,
    task: Mutex<Option<JoinHandle<()>>>,
    /// Rows of inboxes that could not be read.
    unreadable: Mutex<BTreeSet<i64>>,
}

/// Flag of the polling task. It is cleared with the task, even if the task's runtime ends.
struct LookMark(Arc<AtomicBool>);

impl LookMark {
    /// Sets the flag; `None` if another task has set it.
    fn set(is_looking: &Arc<AtomicBool>) -> Option<Self> {
        let is_set = is_looking.swap(true, Ordering::AcqRel);
        (!is_set).then(|| Self(Arc::clone(is_looking)))
    }
}

impl Drop for LookMark {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Watches {
    fn are_empty(&self) -> bool {
        self.inboxes.is_empty() && self.events.is_empty()
    }
}

impl Lookout {
    /// Logs that a row of an inbox cannot be read, the first time only.
    pub(crate) fn warn_once(&self, run: &RunId, row: i64) {
        let mut known = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        if known.insert(row) {
            tracing::warn!(%run, row, "a row of the inbox cannot be read; the run goes on without it");
        }
    }

    /// Polls until there is no watch any more.
    pub(crate) fn look(&self, readers: &SqlitePool) {
        let Some(mark) = LookMark::set(&self.is_looking) else { return };
        let (watches, readers) = (self.watches.clone(), readers.clone());
        let is_looking = Arc::clone(&self.is_looking);
        let mut mark = Some(mark);
        let task = tokio::spawn(async move {
            let mut seen = None;
            // A closed database ends the wait.
            while readers.close_event().do_until(SystemClock.sleep(LOOK_EVERY)).await.is_ok() {
                if watches.are_empty() {
                    drop(mark.take());
                    // A watch added in the meantime found this task still polling.
                    if !watches.are_empty() {
                        mark = LookMark::set(&is_looking);
                    }
                    if mark.is_none() {
                        return;
                    }
                }
                seen = match look_once(&readers, seen.take(), &watches).await {
                    Ok(seen) => Some(seen),
                    Err(sqlx::Error::PoolClosed) => return,
                    Err(error) => {
                        tracing::debug!(%error, "the database cannot be read just now");
                        None
                    }
                };
            }
        });
        let mut held = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ended) = held.replace(task) {
            ended.abort();
        }
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task.take() {
            task.abort();
        }
    }
}

/// The state of the last poll. The version is meaningful only for the connection that read it.
struct LastPoll {
    connection: PoolConnection<Sqlite>,
    version: i64,
    /// Whether inboxes had requests.
    has_requests: bool,
}

/// Wakes the watches if there may be news since the last poll.
///
/// The version of the data changes with each commit of another connection, and reading it reads no table.
async fn look_once(
    readers: &SqlitePool,
    seen: Option<LastPoll>,
    watches: &Watches,
) -> Result<LastPoll, sqlx::Error> {
    let (mut connection, before, had_requests) = match seen {
        Some(LastPoll { connection, version, has_requests }) => {
            (connection, Some(version), has_requests)
        }
        // Watchers may not have read writes from before the first poll.
        None => (readers.acquire().await?, None, true),
    };
    let version = sqlx::query_scalar("PRAGMA data_version").fetch_one(&mut *connection).await?;
    let is_changed = before != Some(version);
    if is_changed {
        watches.events.ring();
    }
    // Pending requests are signalled again, because nothing else notifies a run that failed to read them.
    let has_requests = (is_changed || had_requests)
        && !watches.inboxes.is_empty()
        && ring_inboxes(&mut connection, watches).await?;
    Ok(LastPoll { connection, version, has_requests })
}

/// Wakes the runs that have requests; returns whether there are any.
async fn ring_inboxes(
    connection: &mut SqliteConnection,
    watches: &Watches,
) -> Result<bool, sqlx::Error> {
    let runs = sqlx::query_scalar::<_, String>("SELECT DISTINCT run FROM inbox");
    let runs = runs.fetch_all(connection).await?;
    let has_requests = !runs.is_empty();
    runs.into_iter().for_each(|run| watches.inboxes.ring(&run.into()));
    Ok(has_requests)
}
