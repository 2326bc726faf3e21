//! Removals of runs on request: prune, delete, forget.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use backstop_error_store::StoreError;
use backstop_event_log::{LogError, RunState, Subscription, parse_segment};
use layer0::Timestamp;
use layer0::id::{RunId, SessionId};

use crate::run_row::OVER;
use crate::{OldRun, RemoveError, Removed, RunRow, removable, trees, why_kept};

/// Maximum number of runs in a page when runs are pruned by age; connected runs are read in addition.
pub const PAGE: u16 = 500;

/// Maximum number of tries of a removal that conflicts with another process.
pub(crate) const ATTEMPTS: u32 = 3;

/// The kind of a removal.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Removal {
    /// Whether it removes a segment of a subscription, which has no end.
    pub is_segment: bool,
    /// The person who requested the forgetting, and its time. The run is then removed even if another run continues it.
    pub forgotten: Option<(String, Timestamp)>,
    /// Whether the ids of its texts are forgotten too.
    pub is_silent: bool,
}

/// A store from which runs and their texts can be removed.
///
/// The store only reads and removes rows; [`prune_runs`], [`prune_segments`], [`delete_run`] and
/// [`forget_session`](crate::forget_session) decide what to remove, in the same way for every store.
///
/// # Cancel safety
///
/// If a future is dropped, each run is either complete or gone; the rest of a removed run is removed by the next
/// [`RunShelf::sweep`].
#[async_trait]
pub trait RunShelf: Sync {
    /// Completes removals that a process started and did not finish.
    async fn sweep(&self) -> Result<(), StoreError>;

    /// Reads runs in these states that started before `until`, ordered by start time and then by number: the first
    /// [`PAGE`] of them, or the next ones after `after`. An index has them in this order.
    async fn old_runs(
        &self,
        until: Timestamp,
        states: &[RunState],
        after: Option<&OldRun>,
    ) -> Result<Vec<OldRun>, StoreError>;

    /// Reads the rows of runs and of all runs connected with them, the last started first. A run is connected with its
    /// caller and its child runs, with the run that it continues and the runs that continue it, and with the runs
    /// connected with these.
    async fn connected_runs(&self, runs: &[RunId]) -> Result<Vec<RunRow>, StoreError>;

    /// Reads the rows of the runs of sessions, the last started first.
    async fn session_runs(&self, sessions: &[SessionId]) -> Result<Vec<RunRow>, StoreError>;

    /// Reads the rows of segments of subscriptions; each counts as ended with its last event.
    async fn segments(&self) -> Result<Vec<RunRow>, StoreError>;

    /// Reads the subscriptions.
    async fn subscriptions(&self) -> Result<Vec<Subscription>, StoreError>;

    /// Marks a session as being forgotten, in a transaction under the session's lock, and returns the number of the
    /// mark. Until the mark is removed, no run starts or is reopened in the session, and none is copied from it.
    async fn mark_forgetting(&self, session: &SessionId) -> Result<i64, StoreError>;

    /// Removes marks that [`RunShelf::mark_forgetting`] returned.
    async fn unmark_forgetting(&self, marks: &[i64]) -> Result<(), StoreError>;

    /// Returns a run of these sessions that a worker has taken from a queue and not started yet.
    async fn taken_run(&self, sessions: &[SessionId]) -> Result<Option<RunId>, StoreError>;

    /// Returns the runs of a session that are in a queue.
    async fn queued_runs(&self, session: &SessionId) -> Result<Vec<RunId>, StoreError>;

    /// Removes a run with its descendants, in one transaction, together with the texts that no other run refers to, and
    /// adds them to `removed`. Returns `false` and removes nothing if one of the runs has changed since its row was
    /// read.
    async fn remove(
        &self,
        tree: &[&RunRow],
        removal: &Removal,
        removed: &mut Removed,
    ) -> Result<bool, StoreError>;

    /// Returns a session, and the sessions copied from it or from a copy.
    async fn session_family(&self, session: &SessionId) -> Result<Vec<SessionId>, StoreError>;

    /// Removes the rest of a session: errors, results, state, and runs that wait in a queue. The queued runs are added
    /// to `removed`, each with a tombstone. In a silent removal, the ids of errors and results are forgotten too.
    async fn take_session(
        &self,
        session: &SessionId,
        removal: &Removal,
        removed: &mut Removed,
    ) -> Result<(), StoreError>;
}

fn until(now: Timestamp, age: Duration) -> Timestamp {
    let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_sub(age))
}

/// Removes runs that ended longer ago than `age`, in one of `states`, or in any if that is empty.
///
/// An open run is kept, and so is a run that is connected with a kept run: as its caller, its child run or the run that
/// it continues.
///
/// Runs are read in pages, the first started first, each page with the runs connected with it, which alone decide which
/// runs of the page are kept. Within a page, the last started run is removed first.
///
/// # Errors
///
/// Any variant of [`StoreError`].
pub async fn prune_runs(
    shelf: &impl RunShelf,
    age: Duration,
    states: &[RunState],
    now: Timestamp,
) -> Result<Removed, StoreError> {
    shelf.sweep().await?;
    let until = until(now, age);
    let states: Vec<RunState> =
        OVER.into_iter().filter(|state| states.is_empty() || states.contains(state)).collect();
    let is_old = |row: &RunRow| {
        row.ended_at < until && states.iter().any(|state| state.as_str() == row.state)
    };
    let (mut removed, mut seen, mut after) = (Removed::default(), HashSet::new(), None);
    loop {
        let page = shelf.old_runs(until, &states, after.as_ref()).await?;
        let Some(last) = page.last() else { return Ok(removed) };
        after = Some(last.clone());
        let new = page.into_iter().filter(|old| !seen.contains(&old.id));
        let new: Vec<RunId> = new.map(|old| old.run).collect();
        if new.is_empty() {
            continue;
        }
        let rows = shelf.connected_runs(&new).await?;
        seen.extend(rows.iter().map(|row| row.id));
        for tree in trees(removable(&rows, is_old)) {
            // A run that another process has written to since stays until the next pruning; a run sealed with a key
            // that this process lacks stays until a process that has the key prunes.
            match shelf.remove(&tree, &Removal::default(), &mut removed).await {
                Err(error) if is_key_missing(&error) => {
                    tracing::warn!(run = %tree[0].run, %error, "a run is not pruned");
                }
                result => drop(result?),
            }
        }
    }
}

fn is_key_missing(error: &StoreError) -> bool {
    let StoreError::Failed(cause) = error else { return false };
    matches!(cause.downcast_ref(), Some(LogError::KeyMissing { .. }))
}

/// Removes whole segments of subscriptions whose last event is older than `age`, except the newest of each.
///
/// # Errors
///
/// Any variant of [`StoreError`].
pub async fn prune_segments(
    shelf: &impl RunShelf,
    age: Duration,
    now: Timestamp,
) -> Result<Removed, StoreError> {
    let until = until(now, age);
    let rows = shelf.segments().await?;
    let subscriptions = shelf.subscriptions().await?;
    let is_followed = |row: &&RunRow| {
        parse_segment(&row.run).is_some_and(|(name, number)| {
            let newest = subscriptions.iter().find(|newest| &*newest.name == name);
            newest.is_some_and(|newest| number < newest.segment)
        })
    };
    let removal = Removal { is_segment: true, ..Removal::default() };
    let mut removed = Removed::default();
    for row in rows.iter().filter(|row| row.ended_at < until).filter(is_followed) {
        shelf.remove(&[row], &removal, &mut removed).await?;
    }
    Ok(removed)
}

/// Removes a run with its child runs and their texts.
///
/// # Errors
///
/// Any variant of [`RemoveError`] except [`RemoveError::NoSession`].
pub async fn delete_run(shelf: &impl RunShelf, run: &RunId) -> Result<Removed, RemoveError> {
    shelf.sweep().await?;
    for _ in 0..ATTEMPTS {
        let rows = shelf.connected_runs(std::slice::from_ref(run)).await?;
        let Some(row) = rows.iter().find(|row| row.run == *run) else {
            return Err(RemoveError::NoRun(run.clone()));
        };
        let going = removable(&rows, |root| root.run == *run);
        if !going.iter().any(|going| going.run == *run) {
            return Err(why_kept(&rows, row));
        }
        let mut removed = Removed::default();
        if shelf.remove(&going, &Removal::default(), &mut removed).await? {
            return Ok(removed);
        }
    }
    Err(RemoveError::Open(run.clone()))
}
