//! State of child runs in this process.

use layer0::id::RunId;
use layer0::operator::Waiting;
use layer0::{Code, Timestamp};

use crate::journal::AskId;

/// State of the child runs that is not recorded.
#[derive(Default)]
pub(super) struct ChildRuns {
    /// The child runs that only wait, with the request that an order to suspend answers.
    pub(super) waiting: Vec<(RunId, AskId)>,
    /// Those of them that would lose work if they were suspended.
    staying: Vec<RunId>,
    /// The child runs that were ordered to suspend.
    pub(super) leaving: Vec<RunId>,
    /// The child runs that want more budget, in the order of their requests.
    pub(super) wanting: Vec<(RunId, AskId)>,
    /// The parked child runs, with the end and the reason of their parking.
    parked: Vec<(RunId, Timestamp, Option<Code>)>,
    /// The wait of this run that the caller was sent last, while it lasts.
    pub(super) told: Option<Waiting>,
    /// Whether the run is to be suspended, to be resumed later.
    pub(super) leaves: bool,
}

impl ChildRuns {
    /// Marks the run to be suspended once nothing is in flight.
    pub(super) const fn leaves(&mut self) {
        self.leaves = true;
    }

    /// Registers the end of a child run's wait, if it waits for a time.
    pub(super) fn park(&mut self, run: &RunId, until: Option<Timestamp>, reason: Option<Code>) {
        self.parked.extend(until.map(|until| (run.clone(), until, reason)));
    }

    /// Returns the earliest end of a parking, and its reason.
    pub(super) fn first_parked(&self) -> Option<(Timestamp, Option<Code>)> {
        let first = self.parked.iter().min_by_key(|(_, until, _)| *until)?;
        Some((first.1, first.2.clone()))
    }

    /// Registers that a child run only waits.
    pub(super) fn waits(&mut self, run: &RunId, ask: AskId, stays: bool) {
        self.forget(run);
        self.staying.extend(stays.then(|| run.clone()));
        self.waiting.push((run.clone(), ask));
    }

    /// Returns whether a child run would lose work if it was suspended.
    pub(super) const fn stays(&self) -> bool {
        !self.staying.is_empty()
    }

    /// Registers that a child run has returned.
    pub(super) fn mark_returned(&mut self, run: &RunId) {
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
