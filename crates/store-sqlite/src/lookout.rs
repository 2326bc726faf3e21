//! Hearing of what other processes write.

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

/// How often it is asked whether another process wrote, for all that is watched together.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Who waits for something new in the database. Clones share the watches.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watches {
    pub(crate) inboxes: InboxWatches,
    pub(crate) events: EventWatches,
}

/// Looks for what other processes write, while something is watched. What this process writes, its
/// writer rings for.
#[derive(Debug, Default)]
pub(crate) struct Lookout {
    pub(crate) watches: Watches,
    is_looking: Arc<AtomicBool>,
    task: Mutex<Option<JoinHandle<()>>>,
    /// The rows of inboxes that could not be read.
    unreadable: Mutex<BTreeSet<i64>>,
}

/// The mark of the task that looks. It is removed with the task, even if the runtime of the task ends.
struct LookMark(Arc<AtomicBool>);

impl LookMark {
    /// Sets the mark; `None` if another task has set it.
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
    /// Says that a row of an inbox cannot be read, the first time it is not.
    pub(crate) fn warn_once(&self, run: &RunId, row: i64) {
        let mut known = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        if known.insert(row) {
            tracing::warn!(%run, row, "a row of the inbox cannot be read; the run goes on without it");
        }
    }

    /// Looks from now on, until nothing is watched any more.
    pub(crate) fn look(&self, readers: &SqlitePool) {
        let Some(mark) = LookMark::set(&self.is_looking) else { return };
        let (watches, readers) = (self.watches.clone(), readers.clone());
        let is_looking = Arc::clone(&self.is_looking);
        let mut mark = Some(mark);
        let task = tokio::spawn(async move {
            let mut seen = None;
            // A database that is closed is waited for no more.
            while readers.close_event().do_until(SystemClock.sleep(LOOK_EVERY)).await.is_ok() {
                if watches.are_empty() {
                    drop(mark.take());
                    // What was watched meanwhile found the task still looking.
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

/// What was seen last. The version means something to the connection that it was read through alone.
struct Seen {
    connection: PoolConnection<Sqlite>,
    version: i64,
    /// Were there requests in inboxes?
    has_requests: bool,
}

/// Rings where there may be something new since the last look: the version of the data changes with
/// each commit of another connection, and reading it reads no table.
async fn look_once(
    readers: &SqlitePool,
    seen: Option<Seen>,
    watches: &Watches,
) -> Result<Seen, sqlx::Error> {
    let (mut connection, before, had_requests) = match seen {
        Some(Seen { connection, version, has_requests }) => {
            (connection, Some(version), has_requests)
        }
        // What was written before the first look may not have been read by those who watch.
        None => (readers.acquire().await?, None, true),
    };
    let version = sqlx::query_scalar("PRAGMA data_version").fetch_one(&mut *connection).await?;
    let is_changed = before != Some(version);
    if is_changed {
        watches.events.ring();
    }
    // Requests that stand are rung for again: a run that could not read them is told by nothing else.
    let has_requests = (is_changed || had_requests)
        && !watches.inboxes.is_empty()
        && ring_inboxes(&mut connection, watches).await?;
    Ok(Seen { connection, version, has_requests })
}

/// Rings for the runs that have requests; says whether there are any.
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
