//! Approvals by people in this process.

use std::panic::AssertUnwindSafe;

use backstop_event_log::{Decision, InboxRequest, LogError};
use backstop_react_machine::Approval;
use backstop_redact::Redactor;
use futures_util::FutureExt;
use layer0::failure::Chain;
use layer0::id::ApprovalId;
use layer0::{JsonText, text};

use super::effects::Effects;
use crate::approval::{ApprovalRequest, Approver};
use crate::decide_error::DecideError;
use crate::hook::HookContext;
use crate::journal::{ApprovalReply, StepEnd};
use crate::record::recordable::redacted_decision;

/// Maximum number of questions to an approver whose decisions are refused: a program may repeat the same decision
/// forever.
const MAX_ASKS: usize = 10;

/// Asks the approver.
pub(super) async fn ask(effects: &Effects, approval: Box<Approval>) -> StepEnd {
    let Some(approver) = effects.agent.approver.clone() else {
        return StepEnd::Approval(approval, ApprovalReply::Nothing);
    };
    // time of day: the approver is shown it.
    let (HookContext { run, session }, at) = (effects.context.clone(), effects.agent.clock.now());
    let schema = find_arguments_schema(effects, &approval.tool);
    let request = ApprovalRequest::new(run, session, at, Approval::clone(&approval), schema);
    // It may panic before it returns a future.
    let asked = AssertUnwindSafe(async { decide(effects, &*approver, &request).await });
    let said = asked.catch_unwind().await.unwrap_or_else(|panic| {
        let why = text::panic_message(panic);
        tracing::warn!("the approver panicked: {why}");
        ApprovalReply::Nothing
    });
    StepEnd::Approval(approval, said)
}

/// Asks until a decision is accepted; an approver whose decision is refused gets the reason.
async fn decide(
    effects: &Effects,
    approver: &dyn Approver,
    request: &ApprovalRequest,
) -> ApprovalReply {
    let mut why = None;
    for _ in 0..MAX_ASKS {
        let Some(decision) = approver.decide(request).await else { break };
        let redactor = &effects.agent.redactor;
        match check_decision(redactor, request, decision) {
            Ok(decision) => return ApprovalReply::Decision(decision),
            Err(error) => {
                let (id, text) = (&request.approval.id, Chain(&error).to_string());
                tracing::warn!(%id, error = text, "a decision does not count; it is asked again");
                approver.receive_refusal(request, &error).await;
                why = Some(text);
            }
        }
    }
    why.map_or(ApprovalReply::Nothing, ApprovalReply::Refused)
}

/// Returns a decision in its recorded form, if it is accepted.
fn check_decision(
    redactor: &Redactor,
    request: &ApprovalRequest,
    decision: Decision,
) -> Result<Decision, DecideError> {
    let decision = redacted_decision(redactor, decision)?;
    request.check(&decision).map(|()| decision)
}

/// Returns the schema of a tool's arguments, which changed arguments have to fit.
fn find_arguments_schema(effects: &Effects, tool: &str) -> JsonText {
    let spec = effects.agent.definition.tools.iter().find(|spec| *spec.name == *tool);
    spec.map(|spec| spec.schema.clone()).unwrap_or_default()
}

impl Effects {
    /// Writes a decision of the approver into the inbox, where it counts unless another decision was accepted first, in
    /// this process or elsewhere. Returns `false` without a log.
    pub(crate) async fn accept(
        &self,
        approval: &ApprovalId,
        decision: &Decision,
    ) -> Result<bool, LogError> {
        let Some(log) = &self.agent.log else { return Ok(false) };
        match log.decide(approval, decision.clone(), self.agent.clock.now()).await {
            // A refused decision is not in the inbox, which holds the decision that counts.
            Ok(_) | Err(LogError::ApprovalExpired(_) | LogError::NotApprover { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Writes the expiry of an approval into the inbox, where it counts unless a decision was accepted first. Returns
    /// `false` without a log.
    pub(crate) async fn expire(&self, approval: &Approval) -> Result<bool, LogError> {
        let Some(log) = &self.agent.log else { return Ok(false) };
        // time of day: the run's clock has decided that the approval has expired.
        let at = self.agent.clock.now().max(approval.expires_at.unwrap_or_default());
        let expired = InboxRequest::Expire { approval: approval.id.clone() };
        log.send(expired, "backstop", at).await?;
        Ok(true)
    }
}
