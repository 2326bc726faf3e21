//! A shelf of runs in memory.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use backstop_error_store::StoreError;
use backstop_event_log::{LogError, RunState, Subscription};
use backstop_retention::{OldRun, Removal, Removed, RunRow, RunShelf};
use layer0::Timestamp;
use layer0::id::{RunId, SessionId};

/// Runs in the order of their starts, and the number of runs in a page.
pub(crate) struct Shelf {
    pub(crate) page: usize,
    rows: Mutex<Vec<RunRow>>,
    /// The runs that were read for a decision.
    pub(crate) read: Mutex<Vec<RunId>>,
    /// Sessions that were copied from another session, by its name.
    pub(crate) copies: Vec<(&'static str, SessionId)>,
    /// A run that a worker took from a queue.
    pub(crate) taken: Option<(SessionId, RunId)>,
    /// The queued runs of every session.
    pub(crate) queued: Vec<RunId>,
    /// A session with state.
    pub(crate) stateful: Option<SessionId>,
    pub(crate) subscriptions: Vec<Subscription>,
    /// A session with this many errors and results.
    pub(crate) texts: Option<(SessionId, [u64; 2])>,
    /// Number of removals that conflict with another writer.
    pub(crate) conflicts: Mutex<u32>,
    /// Whether the other writer removes the runs.
    pub(crate) vanishes: bool,
    /// Runs that cannot be removed, with whether a key is missing.
    pub(crate) broken: Vec<(RunId, bool)>,
    /// Number of sweeps, and the kinds of removals.
    pub(crate) swept: Mutex<u32>,
    pub(crate) removals: Mutex<Vec<Removal>>,
    /// The sessions that were marked, and the marks that were removed.
    pub(crate) marks: Mutex<(Vec<SessionId>, Vec<i64>)>,
}

impl Shelf {
    pub(crate) fn new(page: usize, rows: Vec<RunRow>) -> Self {
        Self {
            page,
            rows: Mutex::new(rows),
            read: Mutex::default(),
            copies: Vec::new(),
            taken: None,
            queued: Vec::new(),
            stateful: None,
            subscriptions: Vec::new(),
            texts: None,
            conflicts: Mutex::default(),
            vanishes: false,
            broken: Vec::new(),
            swept: Mutex::default(),
            removals: Mutex::default(),
            marks: Mutex::default(),
        }
    }

    pub(crate) fn rows(&self) -> MutexGuard<'_, Vec<RunRow>> {
        self.rows.lock().unwrap()
    }
}

/// Returns whether one of two runs needs the other.
fn are_connected(one: &RunRow, other: &RunRow) -> bool {
    let names = |row: &RunRow, run: &RunId| {
        [&row.parent, &row.follows].into_iter().any(|named| named.as_ref() == Some(run))
    };
    names(one, &other.run) || names(other, &one.run)
}

#[async_trait]
impl RunShelf for Shelf {
    async fn sweep(&self) -> Result<(), StoreError> {
        *self.swept.lock().unwrap() += 1;
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

    async fn session_runs(&self, sessions: &[SessionId]) -> Result<Vec<RunRow>, StoreError> {
        let rows = self.rows();
        let of_session = rows.iter().filter(|row| sessions.contains(&row.session));
        Ok(of_session.rev().cloned().collect())
    }

    async fn segments(&self) -> Result<Vec<RunRow>, StoreError> {
        Ok(self.rows().clone())
    }

    async fn subscriptions(&self) -> Result<Vec<Subscription>, StoreError> {
        Ok(self.subscriptions.clone())
    }

    async fn remove(
        &self,
        tree: &[&RunRow],
        removal: &Removal,
        removed: &mut Removed,
    ) -> Result<bool, StoreError> {
        let mut rows = self.rows();
        {
            let mut conflicts = self.conflicts.lock().unwrap();
            if *conflicts > 0 {
                *conflicts -= 1;
                rows.retain(|_| !self.vanishes);
                return Ok(false);
            }
        }
        let broken = self.broken.iter().find(|(run, _)| tree.iter().any(|row| row.run == *run));
        if let Some((_, is_key_missing)) = broken {
            let error = if *is_key_missing { LogError::key_missing("k") } else { LogError::Closed };
            return Err(StoreError::Failed(error.into()));
        }
        self.removals.lock().unwrap().push(removal.clone());
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

    async fn mark_forgetting(&self, session: &SessionId) -> Result<i64, StoreError> {
        let (marked, _) = &mut *self.marks.lock().unwrap();
        marked.push(session.clone());
        Ok(i64::try_from(marked.len()).unwrap())
    }

    async fn unmark_forgetting(&self, marks: &[i64]) -> Result<(), StoreError> {
        self.marks.lock().unwrap().1.extend(marks);
        Ok(())
    }

    async fn taken_run(&self, sessions: &[SessionId]) -> Result<Option<RunId>, StoreError> {
        let taken = self.taken.as_ref().filter(|(session, _)| sessions.contains(session));
        Ok(taken.map(|(_, run)| run.clone()))
    }

    async fn queued_runs(&self, _: &SessionId) -> Result<Vec<RunId>, StoreError> {
        Ok(self.queued.clone())
    }

    async fn session_family(&self, session: &SessionId) -> Result<Vec<SessionId>, StoreError> {
        let copies = self.copies.iter().filter(|(of, _)| *of == session.as_str());
        Ok(std::iter::once(session.clone()).chain(copies.map(|(_, copy)| copy.clone())).collect())
    }

    async fn take_session(
        &self,
        session: &SessionId,
        removal: &Removal,
        removed: &mut Removed,
    ) -> Result<(), StoreError> {
        assert!(removal.forgotten.is_some());
        removed.state += u64::from(self.stateful.as_ref() == Some(session));
        if let Some((_, [errors, results])) = self.texts.as_ref().filter(|it| it.0 == *session) {
            removed.errors += errors;
            removed.results += results;
        }
        Ok(())
    }
}
