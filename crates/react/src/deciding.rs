//! Questions to people: asked once their record is durable, answered with facts.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use event_log::Decision;
use futures_util::FutureExt;
use layer0::event::{ApprovalDenied, ApprovalGranted, EventKind};
use layer0::{Code, code};
use react_machine::{Approval, Machine};

use crate::approval::ApprovalRequest;
use crate::driver::Driver;
use crate::error::AgentError;
use crate::running::panic_text;

/// A question in this process, and what came of it.
pub(crate) type Asked = Pin<Box<dyn Future<Output = (Approval, Option<Decision>)> + Send>>;

impl Driver {
    /// Asks whoever decides in this process; without anybody the question stays open.
    pub(crate) fn ask_approval(&mut self, approval: Approval) {
        let Some(approver) = self.agent.approver.clone() else { return };
        let (run, session, at) = (self.run.clone(), self.session.clone(), self.agent.clock.now());
        self.asked.push(Box::pin(async move {
            let request = ApprovalRequest::new(run, session, at, approval);
            let asked = AssertUnwindSafe(approver.decide(&request)).catch_unwind().await;
            let decision = asked.unwrap_or_else(|panic| {
                tracing::warn!("the approver panicked: {}", panic_text(panic));
                None
            });
            (request.approval, decision)
        }));
    }

    /// Takes in what a person said.
    pub(crate) async fn decided(
        &mut self,
        machine: &mut Machine,
        approval: Approval,
        decision: Option<Decision>,
    ) -> Result<(), AgentError> {
        let Some(Decision { approved, by, reason, .. }) = decision else { return Ok(()) };
        if !machine.open_approvals().any(|open| open.id == approval.id) {
            // Somebody else was faster.
            return Ok(());
        }
        let redact = |text: String| Arc::from(&*self.agent.redactor.redact(&text));
        let (approval_id, call_id) = (approval.id, approval.call_id);
        let (by, message) = (redact(by), reason.map(redact));
        let fact: EventKind = if approved {
            ApprovalGranted { approval_id, call_id, by, reason: None, message }.into()
        } else {
            let reason = Code::new(code::APPROVAL_DENIED);
            ApprovalDenied { approval_id, call_id, by, reason, message }.into()
        };
        let resumed = self.resumed_by.take().map(EventKind::from);
        let facts: Vec<_> = resumed.into_iter().chain([fact]).map(|fact| self.fact(fact)).collect();
        self.step(machine, facts).await
    }

    /// Takes in what people decided elsewhere. Says whether there was anything.
    pub(crate) async fn take_decisions(
        &mut self,
        machine: &mut Machine,
    ) -> Result<bool, AgentError> {
        let Some(log) = self.agent.log.clone() else { return Ok(false) };
        let open: Vec<Approval> = machine.open_approvals().cloned().collect();
        let mut any = false;
        for approval in open {
            if let Some(decision) = log.decision(&approval.id).await? {
                any = true;
                self.decided(machine, approval, Some(decision)).await?;
            }
        }
        Ok(any)
    }
}
