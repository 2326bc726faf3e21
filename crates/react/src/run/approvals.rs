//! The approvals that the approver in this process decides.

use backstop_tool::Given;
use layer0::event::RunResumed;
use layer0::id::ApprovalId;

use crate::journal::{AskId, StepId};

/// The approvals that the approver in this process decides.
#[derive(Default)]
pub(super) struct Approvals {
    asked: Vec<(ApprovalId, StepId)>,
    /// The running calls that wait for a person's answer.
    asking: Vec<(ApprovalId, AskId)>,
    /// Answers for running calls, sent once they are recorded.
    given: Vec<(AskId, Given)>,
    /// Expired approvals whose expiry is being recorded.
    expiring: Vec<ApprovalId>,
    /// Event to record before the first decision if the run waited for it.
    resumed_by: Option<RunResumed>,
}

impl Approvals {
    /// Returns the approvals of a resumed run that waits.
    pub(super) fn for_resumed_run(by: Option<RunResumed>) -> Self {
        let (asked, asking, given, expiring) = Default::default();
        Self { asked, asking, given, expiring, resumed_by: by }
    }

    /// Registers the step that asks the approver about an approval.
    pub(super) fn ask(&mut self, id: ApprovalId, step: StepId) {
        self.asked.push((id, step));
    }

    /// Removes an approval. Returns the step that asks the approver about it.
    pub(super) fn withdraw(&mut self, id: &ApprovalId) -> Option<StepId> {
        let place = self.asked.iter().position(|(asked, _)| asked == id)?;
        Some(self.asked.swap_remove(place).1)
    }

    /// Registers the question of a running call.
    pub(super) fn asked_by(&mut self, id: ApprovalId, ask: AskId) {
        self.asking.push((id, ask));
    }

    /// Keeps the answer for a running call, if this is the approval of such a call.
    pub(super) fn give(&mut self, id: &ApprovalId, given: Given) {
        if let Some(place) = self.asking.iter().position(|(asked, _)| asked == id) {
            self.given.push((self.asking.swap_remove(place).1, given));
        }
    }

    /// Takes the answers for running calls.
    pub(super) fn take_given(&mut self) -> Vec<(AskId, Given)> {
        std::mem::take(&mut self.given)
    }

    /// Forgets approvals that are no longer open. Returns the steps that ask about them.
    pub(super) fn forget_closed(&mut self, open: &[&ApprovalId]) -> Vec<StepId> {
        self.asking.retain(|(id, _)| open.contains(&id));
        let closed = self.asked.extract_if(.., |(id, _)| !open.contains(&&*id));
        closed.map(|(_, step)| step).collect()
    }

    /// Returns whether no approval is asked about.
    pub(super) const fn is_idle(&self) -> bool {
        self.asked.is_empty() && self.asking.is_empty() && self.given.is_empty()
    }

    /// Returns whether the expiry of an approval is being recorded.
    pub(super) fn is_expiring(&self, id: &ApprovalId) -> bool {
        self.expiring.contains(id)
    }

    /// Registers the expiry of an approval.
    pub(super) fn expire(&mut self, id: ApprovalId) {
        self.expiring.push(id);
    }

    /// Takes the event to record before the first decision.
    pub(super) const fn take_resumed(&mut self) -> Option<RunResumed> {
        self.resumed_by.take()
    }

    /// Forgets all approvals; their steps are stopped.
    pub(super) fn forget(&mut self) {
        self.asked.clear();
        self.asking.clear();
        self.given.clear();
    }
}
