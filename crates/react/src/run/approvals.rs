//! The approvals that the approver in this process is asked about.

use backstop_tool::Given;
use layer0::event::RunResumed;
use layer0::id::ApprovalId;

use crate::journal::{AskId, StepId};

/// The approvals that the approver in this process is asked about.
#[derive(Default)]
pub(super) struct Approvals {
    asked: Vec<(ApprovalId, StepId)>,
    /// The calls that wait for what they ask a person while they are running.
    asking: Vec<(ApprovalId, AskId)>,
    /// What they are told once it is recorded.
    given: Vec<(AskId, Given)>,
    /// Those whose time is over, as is being recorded.
    expiring: Vec<ApprovalId>,
    /// Is written before the first decision, when the run waited for it.
    resumed_by: Option<RunResumed>,
}

impl Approvals {
    /// Begins in a process that goes on with a run that waits.
    pub(super) fn resumed(by: Option<RunResumed>) -> Self {
        let (asked, asking, given, expiring) = Default::default();
        Self { asked, asking, given, expiring, resumed_by: by }
    }

    /// Notes that this step asks about an approval.
    pub(super) fn ask(&mut self, id: ApprovalId, step: StepId) {
        self.asked.push((id, step));
    }

    /// Notes that an approval is not asked about any more. Returns the step that asked.
    pub(super) fn withdraw(&mut self, id: &ApprovalId) -> Option<StepId> {
        let place = self.asked.iter().position(|(asked, _)| asked == id)?;
        Some(self.asked.swap_remove(place).1)
    }

    /// Notes that a running call asks this.
    pub(super) fn asked_by(&mut self, id: ApprovalId, ask: AskId) {
        self.asking.push((id, ask));
    }

    /// Keeps what a running call is told, if it is one that asks this.
    pub(super) fn give(&mut self, id: &ApprovalId, given: Given) {
        if let Some(place) = self.asking.iter().position(|(asked, _)| asked == id) {
            self.given.push((self.asking.swap_remove(place).1, given));
        }
    }

    /// Takes what running calls are told.
    pub(super) fn take_given(&mut self) -> Vec<(AskId, Given)> {
        std::mem::take(&mut self.given)
    }

    /// Forgets those that are not open any more. Returns the steps that ask about them.
    pub(super) fn closed(&mut self, open: &[&ApprovalId]) -> Vec<StepId> {
        self.asking.retain(|(id, _)| open.contains(&id));
        let closed = self.asked.extract_if(.., |(id, _)| !open.contains(&&*id));
        closed.map(|(_, step)| step).collect()
    }

    /// Is nothing asked?
    pub(super) const fn is_idle(&self) -> bool {
        self.asked.is_empty() && self.asking.is_empty() && self.given.is_empty()
    }

    /// Is it being recorded that the time of an approval is over?
    pub(super) fn is_expiring(&self, id: &ApprovalId) -> bool {
        self.expiring.contains(id)
    }

    /// Notes that the time of an approval is over.
    pub(super) fn expire(&mut self, id: ApprovalId) {
        self.expiring.push(id);
    }

    /// Takes what is written before the first decision.
    pub(super) const fn take_resumed(&mut self) -> Option<RunResumed> {
        self.resumed_by.take()
    }

    /// Forgets those that were asked; their steps are stopped.
    pub(super) fn forget(&mut self) {
        self.asked.clear();
        self.asking.clear();
        self.given.clear();
    }
}
