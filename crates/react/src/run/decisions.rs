//! Approvals: asked for once their record is durable, decided in this process or from outside.

use std::sync::Arc;

use backstop_event_log::{Decision, InboxMessage, InboxRequest};
use backstop_react_machine::{Approval, INPUT, MachineInput};
use backstop_tool::Given;
use layer0::JsonText;
use layer0::event::{ApprovalDenied, ApprovalGranted, Cause, EventKind, SignalReceived};
use layer0::id::{ApprovalId, CallId};
use layer0::operator::Signal;
use layer0::{Timestamp, code, text};

use super::{Run, StepPurpose};
use crate::decide_error::check_data;
use crate::error::AgentError;
use crate::journal::{ApprovalReply, AskId, PersonAsk, Step, StepReply};
use crate::record::recordable::{redact_shared, redacted_decision};

/// Recorded author of the denial of an expired approval.
const RUNTIME: &str = "backstop";

/// Recorded reason if the approver gives no answer to a running call.
const NOTHING_SAID: &str = "there was no answer";

/// Recorded reason if the tool withdraws its question.
const WITHDRAWN: &str = "the tool asks it no more";

impl Run {
    /// Asks the approver in this process; without one, the approval stays open.
    pub(super) fn ask_approval(&mut self, approval: Approval) {
        if self.agent.approver.is_some() && !approval.is_over(self.ledger.at()) {
            let id = approval.id.clone();
            let step = self.start(Step::Approval(Box::new(approval)), StepPurpose::Approval);
            self.approvals.ask(id, step);
        }
    }

    /// Asks the person in this process for a running call.
    pub(super) async fn ask_person(
        &mut self,
        ask: AskId,
        asked: PersonAsk,
    ) -> Result<(), AgentError> {
        let PersonAsk { call, arguments, message, schema } = asked;
        if self.agent.approver.is_none() {
            self.ledger.tell(ask, StepReply::Given(Given::NobodyThere));
            return Ok(());
        }
        // The call may have ended meanwhile.
        if !self.ledger.machine().is_running(&call) {
            return Ok(());
        }
        // An earlier attempt may have asked; its answer is no longer of use.
        self.end_asking(&call, WITHDRAWN).await?;
        if !self.ledger.machine().can_ask_person(&call) {
            self.ledger.tell(ask, StepReply::Given(Given::NobodyThere));
            return Ok(());
        }
        let redactor = &self.agent.redactor;
        let (message, schema) =
            (redact_shared(redactor, message), redactor.redact_held_json(schema));
        let at = self.ledger.at();
        let resumed = self.approvals.take_resumed();
        let mut id = None;
        let asks = self.ledger.change(|machine| {
            if let Some(resumed) = resumed {
                machine.handle(MachineInput::fact(at, resumed))?;
            }
            id = Some(machine.ask_person(at, &call, arguments, message, schema)?);
            Ok(())
        });
        asks.await?;
        if let Some(id) = id {
            self.approvals.asked_by(id, ask);
        }
        Ok(())
    }

    /// Closes the open question of a call, if there is one.
    pub(super) async fn end_asking(&mut self, call: &CallId, why: &str) -> Result<(), AgentError> {
        let mut open = self.ledger.machine().open_approvals();
        let Some(id) = open
            .find(|open| open.is_asked_by_call() && open.call_id == *call)
            .map(|open| open.id.clone())
        else {
            return Ok(());
        };
        drop(open);
        self.approvals.give(&id, Given::NobodyThere);
        let mut denied = ApprovalDenied::new(id, call.clone(), RUNTIME, code::APPROVAL_EXPIRED);
        denied.message = Some(why.into());
        let facts = self.facts_of_people(denied);
        self.ledger.step(facts).await
    }

    /// Closes the question that the tool of a call withdrew.
    pub(super) async fn withdrawn(&mut self, call: &CallId) -> Result<(), AgentError> {
        self.end_asking(call, WITHDRAWN).await
    }

    /// Sends running calls their recorded answers, and stops asking about approvals that are no longer open.
    pub(super) fn settle_approvals(&mut self) {
        if self.approvals.is_idle() {
            return;
        }
        for (ask, given) in self.approvals.take_given() {
            self.ledger.tell(ask, StepReply::Given(given));
        }
        let open: Vec<_> = self.ledger.machine().open_approvals().map(|open| &open.id).collect();
        let closed = self.approvals.forget_closed(&open);
        for step in closed {
            self.ledger.stop(step);
        }
    }

    /// Begins to record the expiry of approvals that were not decided in time.
    pub(super) fn expire_approvals(&mut self) {
        let at = self.ledger.at();
        let open = self.ledger.machine().open_approvals();
        let is_new = |open: &&Approval| open.is_over(at) && !self.approvals.is_expiring(&open.id);
        let over: Vec<Approval> = open.filter(is_new).cloned().collect();
        for approval in over {
            self.approvals.expire(approval.id.clone());
            self.start(Step::Expiry(Box::new(approval)), StepPurpose::Approval);
        }
    }

    /// Returns the time of the next expiry of an approval.
    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        let open = self.ledger.machine().open_approvals();
        let waits = open.filter(|open| !self.approvals.is_expiring(&open.id));
        waits.filter_map(|open| open.expires_at).min()
    }

    /// Records the expiry of an approval. With a log, the inbox decides whether it expired.
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

    /// Records the approver's answer. With a log, the decision in the inbox counts.
    pub(super) async fn approver_answered(
        &mut self,
        approval: Approval,
        said: ApprovalReply,
    ) -> Result<(), AgentError> {
        self.approvals.withdraw(&approval.id);
        match said {
            ApprovalReply::Decision(decision) => {
                let facts = self.decision_facts(&approval.id, decision);
                self.ledger.step(facts).await
            }
            ApprovalReply::Nothing if approval.is_asked_by_call() => {
                self.end_asking(&approval.call_id, NOTHING_SAID).await
            }
            ApprovalReply::Refused(why) if approval.is_asked_by_call() => {
                let why = format!("no answer was accepted: {why}");
                self.end_asking(&approval.call_id, &why).await
            }
            ApprovalReply::InInbox | ApprovalReply::Nothing | ApprovalReply::Refused(_) => {
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
        if let InboxRequest::Signal { name, data, cause, .. } = row.request {
            self.ledger.take_row(row.id);
            return self.take_signal(sent_signal(&name, &data, cause)).await;
        }
        let facts = self.row_facts(row);
        self.ledger.step(facts).await
    }

    /// Takes a row of the inbox with the next append, and returns its inputs. A settlement is left for the next writer
    /// of the run.
    pub(super) fn row_facts(&mut self, row: InboxMessage) -> Vec<MachineInput> {
        if matches!(row.request, InboxRequest::Settle { .. }) {
            return Vec::new();
        }
        self.ledger.take_row(row.id);
        match row.request {
            InboxRequest::Decide { approval, decision } => self.decision_facts(&approval, decision),
            InboxRequest::Expire { approval } => self.expiry_facts(&approval),
            InboxRequest::Signal { name, data, cause, .. } => {
                let signal = self.recordable_signal(sent_signal(&name, &data, cause));
                self.facts_of_outside(signal)
            }
            InboxRequest::Input { text, .. } => {
                let text = self.agent.redactor.redact_held(&text).into_owned();
                let signal = SignalReceived::new(INPUT, text.into());
                self.facts_of_outside(signal)
            }
            _ => Vec::new(),
        }
    }

    /// Returns the inputs of a decision; none if the approval is no longer open.
    fn decision_facts(&mut self, id: &ApprovalId, decision: Decision) -> Vec<MachineInput> {
        let Some(approval) = self.open_approval(id) else { return Vec::new() };
        let decision = match redacted_decision(&self.agent.redactor, decision) {
            Ok(decision) => decision,
            Err(error) => {
                // The sender may know fewer secrets.
                tracing::warn!(%id, %error, "a decision does not count; the approval stays open");
                return Vec::new();
            }
        };
        if !approval.approvers.allow(&decision.by) {
            // The log refuses such a decision, so another program wrote it there.
            tracing::warn!(%id, by = decision.by, "one who may not has decided; it stays open");
            return Vec::new();
        }
        if let Err(error) = check_data(approval.schema.as_ref(), &decision) {
            // The sender gets this error too, except from an earlier version, which does not check data.
            tracing::warn!(%id, %error, "a decision does not count; the approval stays open");
            return Vec::new();
        }
        if approval.is_asked_by_call() && decision.arguments.is_some() {
            tracing::warn!(%id, "a decision changes a call that is running; it stays open");
            return Vec::new();
        }
        self.withdraw(id);
        self.approvals.give(id, to_person_answer(&decision));
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

    /// Returns the inputs of an expiry; none if the approval is no longer open.
    fn expiry_facts(&mut self, id: &ApprovalId) -> Vec<MachineInput> {
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

    /// Returns the input of an event from outside. It ends no wait: a waiting run stays recorded as waiting, and its
    /// `RunResumed` comes with the decision that ends the wait.
    pub(super) fn facts_of_outside(&mut self, fact: impl Into<EventKind>) -> Vec<MachineInput> {
        match self.ledger.machine().is_waiting() {
            true => vec![self.ledger.fact(fact)],
            false => self.facts_of_people(fact),
        }
    }

    /// Returns the input of an event from outside, after the pending `RunResumed` if there is one.
    pub(super) fn facts_of_people(&mut self, fact: impl Into<EventKind>) -> Vec<MachineInput> {
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

fn sent_signal(name: &str, data: &JsonText, cause: Option<Box<Cause>>) -> Signal {
    let mut signal = Signal::new(name, data.value());
    signal.cause = cause;
    signal
}

/// Returns the answer for a running call that asks a person.
fn to_person_answer(decision: &Decision) -> Given {
    match &decision.data {
        Some(data) if decision.approved => Given::Data(data.clone()),
        _ => Given::Declined,
    }
}
