//! Approvals: asked once their record is durable, decided here or elsewhere.

use std::sync::Arc;

use backstop_event_log::{Decision, InboxMessage, InboxRequest};
use backstop_react_machine::{Approval, INPUT, Input};
use layer0::event::{ApprovalDenied, ApprovalGranted, EventKind, SignalReceived};
use layer0::id::ApprovalId;
use layer0::operator::Signal;
use layer0::{Timestamp, code, text};

use super::{InFlight, Run};
use crate::decide_error::check_data;
use crate::error::AgentError;
use crate::journal::Step;
use crate::record::recordable::redacted_decision;

/// Who denies what was not decided in time.
const RUNTIME: &str = "backstop";

impl Run {
    /// Asks the approver in this process; without one the approval stays open.
    pub(super) fn ask_approval(&mut self, approval: Approval) {
        if self.agent.approver.is_some() && !approval.is_over(self.ledger.at()) {
            let id = approval.id.clone();
            let step = self.start(Step::Approval(Box::new(approval)), InFlight::Approval);
            self.approvals.ask(id, step);
        }
    }

    /// Begins to record which approvals were not decided in time.
    pub(super) fn expire_approvals(&mut self) {
        let at = self.ledger.at();
        let open = self.ledger.machine().open_approvals();
        let is_new = |open: &&Approval| open.is_over(at) && !self.approvals.is_expiring(&open.id);
        let over: Vec<Approval> = open.filter(is_new).cloned().collect();
        for approval in over {
            self.approvals.expire(approval.id.clone());
            self.start(Step::Expiry(Box::new(approval)), InFlight::Approval);
        }
    }

    /// Returns when the next approval is not decided in time.
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        let open = self.ledger.machine().open_approvals();
        let waits = open.filter(|open| !self.approvals.is_expiring(&open.id));
        waits.filter_map(|open| open.expires_at).min()
    }

    /// Takes in that an approval was not decided in time. With a log, the inbox says whether it was.
    pub(super) async fn approval_expired(
        &mut self,
        approval: &Approval,
        is_sent: bool,
    ) -> Result<(), AgentError> {
        if is_sent {
            self.ledger.watch();
            return Ok(());
        }
        let facts = self.expiry_facts(&approval.id);
        self.ledger.step(facts).await
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
        if let InboxRequest::Settle { call, settlement, .. } = row.request {
            return self.settle(row.id, call, settlement).await;
        }
        self.ledger.take_row(row.id);
        let facts = match row.request {
            InboxRequest::Decide { approval, decision } => self.decision_facts(&approval, decision),
            InboxRequest::Expire { approval } => self.expiry_facts(&approval),
            InboxRequest::Signal { name, data, cause, .. } => {
                let mut signal = Signal::new(&*name, data.value());
                signal.cause = cause;
                return self.take_signal(signal).await;
            }
            InboxRequest::Input { text, .. } => {
                let text = self.agent.redactor.redact_held(&text).into_owned();
                let signal = SignalReceived::new(INPUT, text.into());
                self.facts_of_people(signal)
            }
            _ => Vec::new(),
        };
        self.ledger.step(facts).await
    }

    /// Returns what a decision adds to the record; nothing when the approval is not open any more.
    fn decision_facts(&mut self, id: &ApprovalId, decision: Decision) -> Vec<Input> {
        let Some(approval) = self.open_approval(id) else { return Vec::new() };
        let decision = redacted_decision(&self.agent.redactor, decision);
        if !approval.approvers.allow(&decision.by) {
            // The log refuses it; another program wrote it there.
            tracing::warn!(%id, by = decision.by, "one who may not has decided; it stays open");
            return Vec::new();
        }
        if let Err(error) = check_data(approval.schema.as_ref(), &decision) {
            // So does whoever sends it; an earlier version knows of no data.
            tracing::warn!(%id, %error, "a decision does not count; the approval stays open");
            return Vec::new();
        }
        self.withdraw(id);
        let (approval_id, call_id) = (approval.id, approval.call_id);
        let Decision { approved, by, reason, arguments, data, .. } = decision;
        let message = reason.map(Arc::from);
        let fact: EventKind = if approved {
            let mut granted = ApprovalGranted::new(approval_id, call_id, by);
            (granted.message, granted.arguments, granted.data) = (message, arguments, data);
            granted.into()
        } else {
            let mut denied = ApprovalDenied::new(approval_id, call_id, by, code::APPROVAL_DENIED);
            denied.message = message;
            denied.into()
        };
        self.facts_of_people(fact)
    }

    /// Returns what it adds to the record that an approval was not decided in time; nothing when it is
    /// not open any more.
    fn expiry_facts(&mut self, id: &ApprovalId) -> Vec<Input> {
        let open = self.open_approval(id).filter(|open| open.expires_at.is_some());
        let Some(Approval { id: approval_id, call_id, .. }) = open else { return Vec::new() };
        self.withdraw(id);
        let mut denied = ApprovalDenied::new(approval_id, call_id, RUNTIME, code::APPROVAL_EXPIRED);
        denied.message = Some(text::EXPIRED.into());
        self.facts_of_people(denied)
    }

    fn open_approval(&self, id: &ApprovalId) -> Option<Approval> {
        self.ledger.machine().open_approvals().find(|open| open.id == *id).cloned()
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
