//! Approvals: asked once their record is durable, decided here or elsewhere.

use std::sync::Arc;

use event_log::{Decision, InboxMessage, InboxRequest};
use layer0::event::{ApprovalDenied, ApprovalGranted, EventKind, SignalReceived};
use layer0::id::ApprovalId;
use layer0::{Code, code};
use react_machine::{Approval, INPUT, Input};

use super::{InFlight, Run};
use crate::error::AgentError;
use crate::journal::Step;
use crate::recordable::redacted_decision;

impl Run {
    /// Asks the approver in this process; without one the approval stays open.
    pub(super) fn ask_approval(&mut self, approval: Approval) {
        if self.agent.approver.is_some() {
            let id = approval.id.clone();
            let step = self.start(Step::Approval(Box::new(approval)), InFlight::Approval);
            self.approvals.ask(id, step);
        }
    }

    /// Takes in what the approver said. With a log, the inbox has the decision that counts.
    pub(super) async fn approver_answered(
        &mut self,
        approval: Approval,
        decision: Option<Decision>,
    ) -> Result<(), AgentError> {
        self.approvals.withdraw(&approval.id);
        match decision {
            Some(decision) => {
                let facts = self.decision_facts(&approval.id, decision);
                self.ledger.step(facts).await
            }
            None => {
                self.ledger.watch();
                Ok(())
            }
        }
    }

    /// Records a row of the inbox.
    pub(super) async fn take_row(&mut self, row: InboxMessage) -> Result<(), AgentError> {
        self.ledger.take_row(row.id);
        let facts = match row.request {
            InboxRequest::Decide { approval, decision } => self.decision_facts(&approval, decision),
            InboxRequest::Input { text, .. } => {
                let text = self.agent.redactor.redact_held(&text).into_owned();
                let signal = SignalReceived { name: INPUT.into(), data: text.into() };
                self.facts_of_people(signal)
            }
            _ => Vec::new(),
        };
        self.ledger.step(facts).await
    }

    /// Returns what a decision adds to the record; nothing when the approval is not open any more.
    fn decision_facts(&mut self, id: &ApprovalId, decision: Decision) -> Vec<Input> {
        let mut open = self.ledger.machine().open_approvals();
        let Some(approval) = open.find(|open| open.id == *id) else { return Vec::new() };
        let (approval_id, call_id) = (id.clone(), approval.call_id.clone());
        drop(open);
        self.withdraw(id);
        let decision = redacted_decision(&self.agent.redactor, decision);
        let Decision { approved, by, reason, .. } = decision;
        let (by, message) = (by.into(), reason.map(Arc::from));
        let fact: EventKind = if approved {
            ApprovalGranted { approval_id, call_id, by, reason: None, message }.into()
        } else {
            let reason = Code::new(code::APPROVAL_DENIED);
            ApprovalDenied { approval_id, call_id, by, reason, message }.into()
        };
        self.facts_of_people(fact)
    }

    /// Returns a fact that came from outside, behind the note that the run goes on after it waited.
    pub(super) fn facts_of_people(&mut self, fact: impl Into<EventKind>) -> Vec<Input> {
        let resumed = self.approvals.take_resumed().map(EventKind::from);
        resumed.into_iter().chain([fact.into()]).map(|fact| self.ledger.fact(fact)).collect()
    }

    /// Stops asking in this process about an approval that was decided.
    fn withdraw(&mut self, id: &ApprovalId) {
        if let Some(step) = self.approvals.withdraw(id) {
            self.ledger.stop(step);
        }
    }
}
