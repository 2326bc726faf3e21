//! The approvals that the approver in this process is asked about.

use layer0::event::RunResumed;
use layer0::id::ApprovalId;

use crate::journal::StepId;

/// The approvals that the approver in this process is asked about.
#[derive(Default)]
pub(super) struct Approvals {
    asked: Vec<(ApprovalId, StepId)>,
    /// Those whose time is over, as is being recorded.
    expiring: Vec<ApprovalId>,
    /// Is written before the first decision, when the run waited for it.
    resumed_by: Option<RunResumed>,
}

impl Approvals {
    /// Begins in a process that goes on with a run that waits.
    pub(super) const fn resumed(by: Option<RunResumed>) -> Self {
        Self { asked: Vec::new(), expiring: Vec::new(), resumed_by: by }
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
    }
}
