//! Asking people in this process.

use std::panic::AssertUnwindSafe;

use event_log::{Decision, LogError};
use futures_util::FutureExt;
use layer0::id::ApprovalId;
use react_machine::Approval;

use super::effects::Effects;
use crate::approval::ApprovalRequest;
use crate::guarded::panic_text;
use crate::hook::HookContext;
use crate::journal::End;
use crate::recordable::redacted_decision;

/// Asks the approver.
pub(super) async fn ask(effects: &Effects, approval: Box<Approval>) -> End {
    let Some(approver) = effects.agent.approver.clone() else {
        return End::Approval(approval, None);
    };
    let (HookContext { run, session }, at) = (effects.context.clone(), effects.agent.clock.now());
    let request = ApprovalRequest::new(run, session, at, Approval::clone(&approval));
    // It may panic before it returns a future.
    let asked = AssertUnwindSafe(async { approver.decide(&request).await }).catch_unwind();
    let decision = asked.await.unwrap_or_else(|panic| {
        let why = panic_text(panic);
        tracing::warn!("the approver panicked: {why}");
        None
    });
    let decision = decision.filter(|decision| match decision.blank() {
        Some(what) => {
            let id = &approval.id;
            tracing::warn!(%id, "a decision has a blank `{what}`; the approval stays open");
            false
        }
        None => true,
    });
    let redactor = &effects.agent.redactor;
    let decision = decision.map(|decision| redacted_decision(redactor, decision));
    End::Approval(approval, decision)
}

impl Effects {
    /// Writes a decision of the approver into the inbox, where it counts if no other was accepted
    /// before, here or elsewhere. `false` without a log.
    pub(crate) async fn accept(
        &self,
        approval: &ApprovalId,
        decision: &Decision,
    ) -> Result<bool, LogError> {
        let Some(log) = &self.agent.log else { return Ok(false) };
        log.decide(approval, decision.clone(), self.agent.clock.now()).await?;
        Ok(true)
    }
}
