//! Runs in memory.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use backstop_error_store::StoreError;
use backstop_event_log::{RunState, Subscription};
use backstop_retention::{OldRun, Removal, Removed, RunRow, RunShelf};
use layer0::Timestamp;
use layer0::id::{RunId, SessionId};

/// Runs that started one after the other, and how many of them are in a page.
pub(crate) struct Shelf {
    pub(crate) page: usize,
    rows: Mutex<Vec<RunRow>>,
    /// The runs that were read to decide about them.
    pub(crate) read: Mutex<Vec<RunId>>,
}

impl Shelf {
    pub(crate) fn new(page: usize, rows: Vec<RunRow>) -> Self {
        Self { page, rows: Mutex::new(rows), read: Mutex::default() }
    }

    pub(crate) fn rows(&self) -> MutexGuard<'_, Vec<RunRow>> {
        self.rows.lock().unwrap()
    }
}

/// Does one of two runs need the other?
fn are_connected(one: &RunRow, other: &RunRow) -> bool {
    let names = |row: &RunRow, run: &RunId| {
        [&row.parent, &row.follows].into_iter().any(|named| named.as_ref() == Some(run))
    };
    names(one, &other.run) || names(other, &one.run)
}

#[async_trait]
impl RunShelf for Shelf {
    async fn sweep(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn old_runs(
        &self,
        until: Timestamp,
        states: &[RunState],
        after: Option<&OldRun>,
    ) -> Result<Vec<OldRun>, StoreError> {
        let started = |row: &RunRow| Timestamp::from_millis(row.id);
        let rows = self.rows();
        let old = rows
            .iter()
            .filter(|row| started(row) < until && after.is_none_or(|after| row.id > after.id))
            .filter(|row| states.iter().any(|state| state.as_str() == row.state))
            .take(self.page);
        let read =
            |row: &RunRow| OldRun { id: row.id, run: row.run.clone(), started_at: started(row) };
        Ok(old.map(read).collect())
    }

    async fn connected_runs(&self, runs: &[RunId]) -> Result<Vec<RunRow>, StoreError> {
        let rows = self.rows();
        let is_named = |at: &usize| runs.contains(&rows[*at].run);
        let mut found: BTreeSet<usize> = (0..rows.len()).filter(is_named).collect();
        let mut new: Vec<usize> = found.iter().copied().collect();
        while let Some(at) = new.pop() {
            for other in 0..rows.len() {
                if are_connected(&rows[at], &rows[other]) && found.insert(other) {
                    new.push(other);
                }
            }
        }
        let found: Vec<RunRow> = found.into_iter().rev().map(|at| rows[at].clone()).collect();
        self.read.lock().unwrap().extend(found.iter().map(|row| row.run.clone()));
        Ok(found)
    }

    async fn runs_of(&self, _: &[SessionId]) -> Result<Vec<RunRow>, StoreError> {
        unreachable!("no session is forgotten here")
    }

    async fn segments(&self) -> Result<Vec<RunRow>, StoreError> {
        unreachable!("there are no subscriptions")
    }

    async fn subscriptions(&self) -> Result<Vec<Subscription>, StoreError> {
        unreachable!("there are no subscriptions")
    }

    async fn remove(
        &self,
        tree: &[&RunRow],
        _: &Removal,
        removed: &mut Removed,
    ) -> Result<bool, StoreError> {
        let mut rows = self.rows();
        for row in tree {
            let by = rows.iter().find(|later| {
                later.follows.as_ref() == Some(&row.run)
                    && !tree.iter().any(|going| going.id == later.id)
            });
            assert!(by.is_none(), "{} is removed before {by:?}", row.run);
        }
        rows.retain(|other| !tree.iter().any(|going| going.id == other.id));
        removed.runs.extend(tree.iter().map(|row| row.run.clone()));
        Ok(true)
    }

    async fn mark_forgetting(&self, _: &SessionId) -> Result<i64, StoreError> {
        unreachable!("no session is forgotten here")
    }

    async fn unmark_forgetting(&self, _: &[i64]) -> Result<(), StoreError> {
        unreachable!("no session is forgotten here")
    }

    async fn taken_run(&self, _: &[SessionId]) -> Result<Option<RunId>, StoreError> {
        unreachable!("no session is forgotten here")
    }

    async fn copies_of(&self, _: &SessionId) -> Result<Vec<SessionId>, StoreError> {
        unreachable!("no session is forgotten here")
    }

    async fn take_session(
        &self,
        _: &SessionId,
        _: &Removal,
        _: &mut Removed,
    ) -> Result<(), StoreError> {
        unreachable!("no session is forgotten here")
    }
}
