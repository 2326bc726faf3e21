//! What is known of runs below another one while it is at work.

use layer0::id::RunId;
use layer0::operator::Waiting;
use layer0::{Code, Timestamp};

use crate::journal::AskId;

/// What is known of the runs below, beside what is recorded.
#[derive(Default)]
pub(super) struct Below {
    /// Those that do nothing but wait, and where they are told to leave.
    pub(super) waiting: Vec<(RunId, AskId)>,
    /// Those of them that would lose something if they left.
    staying: Vec<RunId>,
    /// Those that were told to leave.
    pub(super) leaving: Vec<RunId>,
    /// Those that want more of the budget, in the order they asked.
    pub(super) wanting: Vec<(RunId, AskId)>,
    /// Those that are parked, until when and why.
    parked: Vec<(RunId, Timestamp, Option<Code>)>,
    /// What the caller was told last that this run waits for, as long as it waits.
    pub(super) told: Option<Waiting>,
    /// Does the run leave, to be taken up later?
    pub(super) leaves: bool,
}

impl Below {
    /// The run leaves once nothing is in flight.
    pub(super) const fn leaves(&mut self) {
        self.leaves = true;
    }

    /// A run waits until then, if for a time.
    pub(super) fn park(&mut self, run: &RunId, until: Option<Timestamp>, reason: Option<Code>) {
        self.parked.extend(until.map(|until| (run.clone(), until, reason)));
    }

    /// Returns when the first of them goes on, and why it is parked.
    pub(super) fn first_parked(&self) -> Option<(Timestamp, Option<Code>)> {
        let first = self.parked.iter().min_by_key(|(_, until, _)| *until)?;
        Some((first.1, first.2.clone()))
    }

    /// A run does nothing but wait.
    pub(super) fn waits(&mut self, run: &RunId, ask: AskId, stays: bool) {
        self.forget(run);
        self.staying.extend(stays.then(|| run.clone()));
        self.waiting.push((run.clone(), ask));
    }

    /// Would a run lose something if it left?
    pub(super) const fn stays(&self) -> bool {
        !self.staying.is_empty()
    }

    /// A run has returned.
    pub(super) fn returned(&mut self, run: &RunId) {
        self.forget(run);
    }

    pub(super) fn forget(&mut self, run: &RunId) {
        self.waiting.retain(|(waiting, _)| waiting != run);
        self.staying.retain(|staying| staying != run);
        self.leaving.retain(|leaving| leaving != run);
        self.wanting.retain(|(wanting, _)| wanting != run);
        self.parked.retain(|(parked, ..)| parked != run);
    }

    pub(super) fn is_waiting(&self, run: &RunId) -> bool {
        self.waiting.iter().any(|(waiting, _)| waiting == run) || self.leaving.contains(run)
    }
}
