//! What people ask of the runs of a store: prune, delete, forget.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use backstop_error_store::StoreError;
use backstop_event_log::{LogError, RunState, Subscription, segment_of};
use layer0::Timestamp;
use layer0::id::{RunId, SessionId};

use crate::run_row::OVER;
use crate::{OldRun, RemoveError, Removed, RunRow, removable, trees, why_kept};

/// How many runs are looked at together when runs are pruned by their age, at most, beside those connected with them.
pub const PAGE: u16 = 500;

/// The most tries of a removal that conflicts with another process.
pub(crate) const ATTEMPTS: u32 = 3;

/// How a run goes.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Removal {
    /// Is it a segment of a subscription, which has no end?
    pub is_segment: bool,
    /// Who wanted it forgotten, and when; then it goes even if another goes on with it.
    pub forgotten: Option<(String, Timestamp)>,
    /// Are the ids of its texts forgotten too?
    pub is_silent: bool,
}

/// A store that takes runs away, with what they stored: what it reads and takes away, step by step. What goes is
/// decided by [`prune_runs`], [`prune_segments`], [`delete_run`] and [`forget_session`](crate::forget_session), alike for every store.
///
/// # Cancel safety
///
/// A future that is dropped leaves each run whole or gone; the rest of one that is gone is taken away by the next
/// [`RunShelf::sweep`].
#[async_trait]
pub trait RunShelf: Sync {
    /// Goes on with what a process began and did not end.
    async fn sweep(&self) -> Result<(), StoreError>;

    /// Reads runs of these states that started before `until`, in the order in which they started, those of one moment
    /// by their numbers: the first [`PAGE`] of them, or the next ones behind `after`. An index has them in this order.
    async fn old_runs(
        &self,
        until: Timestamp,
        states: &[RunState],
        after: Option<&OldRun>,
    ) -> Result<Vec<OldRun>, StoreError>;

    /// Reads the rows of runs and of all that are connected with them, the last started first: those that dispatched
    /// them or were dispatched by them, those that they go on with or that go on with them, and those connected with
    /// these.
    async fn connected_runs(&self, runs: &[RunId]) -> Result<Vec<RunRow>, StoreError>;

    /// Reads the rows of the runs of sessions, the last started first.
    async fn session_runs(&self, sessions: &[SessionId]) -> Result<Vec<RunRow>, StoreError>;

    /// Reads the rows of segments of subscriptions; each ended with its last event.
    async fn segments(&self) -> Result<Vec<RunRow>, StoreError>;

    /// Reads the subscriptions.
    async fn subscriptions(&self) -> Result<Vec<Subscription>, StoreError>;

    /// Marks a session as being forgotten, in a transaction that the lock of the session guards, and returns the number
    /// of the mark. Until the mark is taken off, no run begins there, none is reopened, and none is copied from there.
    async fn mark_forgetting(&self, session: &SessionId) -> Result<i64, StoreError>;

    /// Takes marks off that [`RunShelf::mark_forgetting`] returned.
    async fn unmark_forgetting(&self, marks: &[i64]) -> Result<(), StoreError>;

    /// Returns a run of these sessions that a worker has taken from a queue and not begun yet.
    async fn taken_run(&self, sessions: &[SessionId]) -> Result<Option<RunId>, StoreError>;

    /// Returns the runs of a session that are in a queue.
    async fn queued_runs(&self, session: &SessionId) -> Result<Vec<RunId>, StoreError>;

    /// Removes a run with the runs below it, in one transaction, with the texts that no other run refers to, and adds
    /// them to `removed`. Returns `false`, and removes nothing, where one of them is not as its row says any more.
    async fn remove(
        &self,
        tree: &[&RunRow],
        removal: &Removal,
        removed: &mut Removed,
    ) -> Result<bool, StoreError>;

    /// Returns a session, and those that were copied from it or from a copy.
    async fn session_family(&self, session: &SessionId) -> Result<Vec<SessionId>, StoreError>;

    /// Takes away what is left of a session: errors, results and state, and runs that wait in a queue, which are added to
    /// what was removed, each with a tombstone. Where the removal is silent, the ids of errors and results are forgotten
    /// too.
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

/// Takes away runs that ended longer ago than `age`: of all states that are over, or of these. An open run stays,
/// and one that a kept run goes on with, dispatched or was dispatched by.
///
/// Runs are read in pages, from the first started on, each page with the runs that are connected with those of it:
/// what is to be kept of these is told by them alone. Of a page, the last started goes first.
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
            // One that another process wrote to meanwhile stays until the next pruning; one that is sealed with a key
            // that this process lacks stays until a process that has it prunes.
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

/// Takes away whole segments of subscriptions whose last event is that old, but for the newest of each.
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
        segment_of(&row.run).is_some_and(|(name, number)| {
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

/// Takes a run away, with the runs that it dispatched and what they stored.
///
/// # Errors
///
/// Any variant of [`RemoveError`] but [`RemoveError::NoSession`].
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
