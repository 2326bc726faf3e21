//! Calls that need the approval of a person.

use std::sync::Arc;
use std::time::Duration;

use layer0::event::{
    Actor, ApprovalDenied, ApprovalGranted, ApprovalRequested, RunWaiting, ToolResponded, WaitFor,
};
use layer0::id::{ApprovalId, CallId};
use layer0::{Approvers, Code, JsonText, Timestamp, code};

use super::{Machine, MachineState};
use crate::denials::{Denial, approval_id, arguments_hash};
use crate::io::{Approval, MachineAction, MachineInput, Misuse};
use crate::phase::RunPhase;
use crate::phase::batch::{CallBatch, CallIndex, HeldCall};

/// Name under which the runtime closes an approval that no call needs any more.
const RUNTIME: &str = "backstop";

/// Message with which it is closed.
const ASKED_NO_MORE: &str = "no decision came while the call was running";

impl Machine {
    /// Holds an admitted call until a person approves it with these arguments.
    ///
    /// # Errors
    ///
    /// [`Misuse`] if no such call waits to be admitted; then nothing has changed.
    pub fn hold(
        &mut self,
        at: Timestamp,
        call_id: &CallId,
        arguments: JsonText,
    ) -> Result<(), Misuse> {
        let state = self.phase.name();
        let RunPhase::Working(batch) = &mut self.phase else {
            return Err(Misuse::Unexpected { event: "approval.requested", state });
        };
        let place = batch.check_hold(call_id)?;
        self.run.clock.advance(at);
        self.run.hold(batch, place, arguments);
        Ok(())
    }

    /// Returns whether a running call can ask a person now: not during another request, and not once the events of the
    /// budget are used up.
    #[must_use]
    pub fn can_ask_person(&self, call: &CallId) -> bool {
        let is_free = self.phase.batch().is_some_and(|batch| batch.check_ask(call).is_ok());
        is_free && self.run.meter.budget().used_up_events(self.run.events()).is_none()
    }

    /// Records that a running call asks a person: the call has these arguments, and requests data that fits the schema
    /// with this message. The approval is closed with the call, unless it is decided before. Returns its id.
    ///
    /// # Errors
    ///
    /// [`Misuse`] if no such call is running, or it has an open request; then nothing has changed.
    pub fn ask_person(
        &mut self,
        at: Timestamp,
        call_id: &CallId,
        arguments: JsonText,
        message: Arc<str>,
        schema: JsonText,
    ) -> Result<ApprovalId, Misuse> {
        let state = self.phase.name();
        let Some(batch) = self.phase.batch() else {
            return Err(Misuse::Unexpected { event: "approval.requested", state });
        };
        let (_, tool) = batch.check_ask(call_id)?;
        let id = approval_id(&self.run.id, self.run.events() + 1, call_id);
        let (hash, tool) = (arguments_hash(&arguments), Arc::clone(tool));
        let mut asked = ApprovalRequested::new(id.clone(), call_id.clone(), tool, arguments, hash);
        (asked.message, asked.schema) = (Some(message), Some(schema));
        asked.approvers = self.run.approval_terms(&asked.tool).approvers;
        self.handle(MachineInput::fact(at, asked)).map(|()| id)
    }

    /// Returns the denial of this very call, if people denied it in this run.
    #[must_use]
    pub fn find_denial(&self, tool: &str, arguments: &JsonText) -> Option<&Denial> {
        self.run.denials.find(tool, || self.run.definition.canonicalize_arguments(tool, arguments))
    }

    /// Returns whether the run waits for people, with nothing else to do.
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        self.run.clock.is_waiting()
    }

    /// Returns the open approvals: of calls that wait for one, and of requests from running calls.
    pub fn open_approvals(&self) -> impl Iterator<Item = &Approval> {
        self.phase
            .batch()
            .into_iter()
            .flat_map(|batch| batch.held_approvals().chain(batch.person_requests()))
    }
}

/// Terms of the approvals of a tool's calls.
#[derive(Default)]
struct ApprovalTerms {
    /// Time to decide.
    expires_after: Option<Duration>,
    /// People who may decide.
    approvers: Approvers,
    /// JSON Schema of the requested data.
    schema: Option<JsonText>,
}

impl MachineState {
    fn hold(&mut self, batch: &mut CallBatch, place: CallIndex, arguments: JsonText) {
        let (call_id, tool) = batch.call_at(place);
        let ApprovalTerms { expires_after, approvers, schema } = self.approval_terms(&tool);
        let id = approval_id(&self.id, self.events() + 1, &call_id);
        let mut approval = Approval::new(id, call_id, tool, arguments);
        approval.contract = self.contract(&approval.tool);
        approval.expires_at = expires_after.map(|time| self.clock.now().after(time));
        (approval.approvers, approval.schema) = (approvers, schema);
        let mut requested = ApprovalRequested::new(
            approval.id.clone(),
            approval.call_id.clone(),
            Arc::clone(&approval.tool),
            approval.arguments.clone(),
            Arc::clone(&approval.arguments_hash),
        );
        (requested.expires_at, requested.schema) = (approval.expires_at, approval.schema.clone());
        requested.approvers = approval.approvers.clone();
        let cause = batch.cause_at(place);
        let seq = self.append(Actor::Machine, Some(cause), requested);
        batch.hold(place, approval.clone(), seq);
        self.perform(MachineAction::AskApproval(approval));
        self.wait_if_idle(batch, seq);
    }

    fn approval_terms(&self, tool: &str) -> ApprovalTerms {
        let spec = self.definition.tools.iter().find(|spec| *spec.name == *tool);
        let terms = spec.map(|spec| ApprovalTerms {
            expires_after: spec.expires_after,
            approvers: spec.approvers.clone(),
            schema: spec.approval_schema.clone(),
        });
        terms.unwrap_or_default()
    }

    pub(super) fn approval_granted(
        &mut self,
        batch: &mut CallBatch,
        HeldCall { place, mut approval, requested }: HeldCall,
        granted: ApprovalGranted,
    ) -> Option<RunPhase> {
        self.clock.end_waiting();
        if approval.is_asked_by_call() {
            batch.end_asking(place);
            self.append(Actor::Person, Some(requested), granted);
            return None;
        }
        if self.has_another_contract(&approval) {
            self.append(Actor::Person, Some(requested), granted);
            self.ask_about_contract(batch, &HeldCall { place, approval, requested });
            return None;
        }
        let changed = granted.arguments.is_some();
        if let Some(arguments) = granted.arguments.clone() {
            approval.change(arguments);
        }
        let (call, data) = (approval.call(), granted.data.clone());
        let seq = self.append(Actor::Person, Some(requested), granted);
        batch.agree(place, approval, data, changed, seq);
        self.admit_approved(Arc::from([call]), changed);
        None
    }

    pub(super) fn approval_denied(
        &mut self,
        batch: &mut CallBatch,
        held: HeldCall,
        denied: ApprovalDenied,
    ) -> Option<RunPhase> {
        self.clock.end_waiting();
        let reason = denied.message.clone().unwrap_or_default();
        let (actor, by) = match denied.reason == code::APPROVAL_EXPIRED {
            true => (Actor::Runtime, Arc::default()),
            false => (Actor::Person, Arc::clone(&denied.by)),
        };
        if held.approval.is_asked_by_call() {
            // The tool decides how to proceed.
            batch.end_asking(held.place);
            self.append(actor, Some(held.requested), denied);
            return None;
        }
        let denial = Denial { by, reason };
        let mut seq = self.append(actor, Some(held.requested), denied);
        let (text, decided) = (denial.text(), seq);
        let Approval { tool, arguments, .. } = &held.approval;
        let taken = self.definition.canonicalize_arguments(tool, arguments);
        self.denials.insert(Arc::clone(tool), &taken, denial);
        // Other held calls with the same arguments are denied too.
        let alike = batch
            .held_like(&held, |other| self.definition.canonicalize_arguments(tool, other) == taken);
        for held in std::iter::once(held).chain(alike) {
            let Approval { call_id, tool, .. } = held.approval;
            let answer = ToolResponded::refusal(call_id, tool, code::TOOL_APPROVAL_DENIED, &text);
            match self.answer_call(batch, held.place, Actor::Machine, decided, answer) {
                Ok(answered) => seq = answered,
                Err(stopped) => return Some(self.stop_by_hook(batch, stopped)),
            }
        }
        self.go_on(batch, seq)
    }

    /// Opens the request of a running call to a person.
    pub(super) fn open_person_request(
        &mut self,
        batch: &mut CallBatch,
        place: CallIndex,
        asked: ApprovalRequested,
    ) -> Option<RunPhase> {
        self.clock.end_waiting();
        let (id, call_id) = (asked.approval_id.clone(), asked.call_id.clone());
        let (tool, arguments) = (Arc::clone(&asked.tool), asked.arguments.clone());
        let mut approval = Approval::new(id, call_id, tool, arguments);
        (approval.schema, approval.message) = (asked.schema.clone(), asked.message.clone());
        approval.approvers = asked.approvers.clone();
        let seq = self.append(Actor::Runtime, Some(batch.cause_at(place)), asked);
        batch.ask(place, approval.clone(), seq);
        self.perform(MachineAction::AskApproval(approval));
        None
    }

    /// Closes requests that their calls no longer need, for this reason.
    pub(super) fn end_asking(
        &mut self,
        asked: impl IntoIterator<Item = (Approval, u64)>,
        reason: &Code,
    ) {
        for (Approval { id, call_id, .. }, requested) in asked {
            let mut denied = ApprovalDenied::new(id, call_id, RUNTIME, reason.clone());
            denied.message = Some(ASKED_NO_MORE.into());
            self.append(Actor::Machine, Some(requested), denied);
        }
    }

    /// Records that the run waits, once only answers of people are missing.
    pub(super) fn wait_if_idle(&mut self, batch: &CallBatch, cause: u64) {
        if !batch.is_idle() || self.clock.is_waiting() {
            return;
        }
        let approvals = batch.held_approvals().map(|approval| approval.id.clone()).collect();
        self.append(Actor::Machine, Some(cause), RunWaiting::new(WaitFor::Approval, approvals));
        self.clock.begin_waiting();
    }
}
