//! Root runs of sessions, and the checks before a run starts or is reopened.

use std::collections::{BTreeMap, HashMap};

use layer0::id::{RunId, SessionId};

use crate::{LogError, RunSummary};

/// The sessions of a log.
#[derive(Debug, Default)]
pub(super) struct Sessions(HashMap<SessionId, SessionRuns>);

#[derive(Debug, Default)]
struct SessionRuns {
    /// The runs of the transcript, each with the run that it follows, in the order of their starts.
    line: Vec<(RunId, Option<RunId>)>,
    /// The open runs, each with the first run of those dispatched together with it.
    open: BTreeMap<RunId, RunId>,
}

impl Sessions {
    /// Returns the last run of a session's transcript.
    pub(super) fn last(&self, session: &SessionId) -> Option<&RunId> {
        self.0.get(session)?.line.last().map(|(run, _)| run)
    }

    /// Adds a new run.
    ///
    /// # Errors
    ///
    /// [`LogError::SessionBusy`] with the run that the new run must wait for, or must follow but does not.
    pub(super) fn begin(&mut self, new: &RunSummary) -> Result<(), LogError> {
        let session = self.0.entry(new.session.clone()).or_default();
        if let Some(other) = session.find_conflicting_run(new) {
            return Err(LogError::session_busy(new.session.clone(), other.clone()));
        }
        if new.branch_of.is_none() {
            session.line.push((new.run.clone(), new.follows.clone()));
        }
        Ok(())
    }

    /// Updates whether a run is open.
    pub(super) fn update(&mut self, run: &RunSummary) {
        let Some(session) = self.0.get_mut(&run.session) else { return };
        match run.is_open() {
            true => session.open.insert(run.run.clone(), first_branch(run).clone()),
            false => session.open.remove(&run.run),
        };
    }

    /// Checks that a run may be reopened: no other run follows it, and no unrelated run is open.
    ///
    /// # Errors
    ///
    /// [`LogError::Followed`], [`LogError::SessionBusy`].
    pub(super) fn reopen(&self, run: &RunSummary) -> Result<(), LogError> {
        let Some(session) = self.0.get(&run.session) else { return Ok(()) };
        let follows = |(_, earlier): &&(RunId, Option<RunId>)| earlier.as_ref() == Some(&run.run);
        if let Some((next, _)) = session.line.iter().find(follows) {
            return Err(LogError::followed_run(run.run.clone(), next.clone()));
        }
        match session.open_beside(run) {
            Some(open) => Err(LogError::session_busy(run.session.clone(), open.clone())),
            None => Ok(()),
        }
    }
}

impl SessionRuns {
    fn find_conflicting_run<'a>(&'a self, new: &'a RunSummary) -> Option<&'a RunId> {
        if let Some(open) = self.open_beside(new) {
            return Some(open);
        }
        let last = self.line.last();
        match &new.branch_of {
            Some(first) if last == Some(&(first.clone(), new.follows.clone())) => None,
            Some(_) => last.map(|(run, _)| run),
            None => last.map(|(run, _)| run).filter(|run| new.follows.as_ref() != Some(run)),
        }
    }

    /// Returns an open run that was not dispatched together with this one.
    fn open_beside(&self, run: &RunSummary) -> Option<&RunId> {
        let is_other =
            |(open, first): &(&RunId, &RunId)| **open != run.run && *first != first_branch(run);
        self.open.iter().find(is_other).map(|(open, _)| open)
    }
}

/// Returns the first run of those dispatched together with this one.
fn first_branch(run: &RunSummary) -> &RunId {
    run.branch_of.as_ref().unwrap_or(&run.run)
}
