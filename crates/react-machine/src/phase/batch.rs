//! The calls of one model answer, each from its admission to its answer.

mod check;
mod unfinished;

use std::sync::Arc;

use layer0::JsonText;
use layer0::code::TOOL_CANCELLED;
use layer0::event::{ToolResolved, ToolResponded};
use layer0::id::{CallId, ErrorId};
use layer0::message::{Message, ToolCall};

use crate::definition::AgentDefinition;
use crate::digest::result_digest;
use crate::failure::FailureCause;
use crate::io::{Approval, EffectId, ToolRun};
use crate::signature::{batch_signature, shared_signature};
use crate::tool_message::tool_message;

pub(crate) use unfinished::{Sorted, Unfinished};

/// How many executions stay with the caller for each of its tools that is running: as many as the
/// runtime tries one again by default.
const RETRIES_KEPT: u32 = 2;

/// The calls of one model answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Batch {
    /// The seq of the answer that asked for them.
    responded: u64,
    /// What makes another batch the same.
    signature: Arc<str>,
    calls: Vec<Call>,
    /// Was a call kept from running by the budget?
    cancelled: bool,
    /// Does the caller have to give more of its budget before the calls are looked at?
    is_short: bool,
    /// Is it a copy, whose open dispatches are another run's?
    is_copied: bool,
    /// Whether events were lost in which calls may have run that have not begun by the record.
    is_doubtful: bool,
    /// The run stops once this call has its answer.
    stopping: Option<(CallId, StoppedByHook)>,
}

/// What a hook stopped the run with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoppedByHook {
    /// The seq of the hook's event.
    pub(crate) cause: u64,
    pub(crate) failure: FailureCause,
}

#[derive(Debug, Clone, PartialEq)]
struct Call {
    id: CallId,
    tool: Arc<str>,
    /// The model's arguments.
    arguments: JsonText,
    /// What makes another call the same, by the model's arguments.
    signature: Arc<str>,
    /// Where the error of its execution is stored.
    stored: Option<ErrorId>,
    /// What a person said of it while it had no answer.
    settled: Option<Box<ToolResolved>>,
    /// What it asks a person while it is running.
    asking: Option<Box<Asking>>,
    state: CallState,
}

/// What a running call asks a person; the seq is that of the request.
#[derive(Debug, Clone, PartialEq)]
struct Asking {
    approval: Approval,
    requested: u64,
}

#[derive(Debug, Clone, PartialEq)]
enum CallState {
    /// Not yet admitted.
    Asked,
    /// Waits for a person; the seq is that of the approval's request.
    Held { approval: Approval, requested: u64 },
    /// A person agreed, and gave the data that was asked for; the runtime acts on it. The seq is that of
    /// the decision.
    Decided { approval: Approval, data: Option<JsonText>, changed: bool, decided: u64 },
    /// May have begun; the signature is by the arguments it was given.
    Open { effect: EffectId, requested: u64, signature: Arc<str> },
    /// Has its answer; the message waits for the rest of the batch.
    Answered { message: Message, result: u64 },
}

/// Where in its batch a call stands. Only a check gives it out, so that it always holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(usize);

/// A call that waits for a person, or that asks one while it is running.
pub(crate) struct Held {
    pub(crate) place: Place,
    pub(crate) approval: Approval,
    /// The seq of the approval's request.
    pub(crate) requested: u64,
}

/// Who answers a call, and what led to it.
pub(crate) enum Answering<'b> {
    /// The tool ran; the signature is by the arguments it was given.
    Ran { requested: u64, signature: &'b Arc<str> },
    /// It did not run.
    Refused { cause: u64 },
}

/// A batch whose calls all have their answers.
pub(crate) struct Closed {
    signature: Arc<str>,
    cancelled: bool,
    calls: Vec<Call>,
}

impl Closed {
    pub(crate) const fn signature(&self) -> &Arc<str> {
        &self.signature
    }

    /// Was a call kept from running by the budget?
    pub(crate) const fn cancelled(&self) -> bool {
        self.cancelled
    }

    /// Returns what each call came to, by its signature.
    pub(crate) fn results(&self) -> impl Iterator<Item = (&str, u64)> {
        self.calls.iter().filter_map(|call| match call.state {
            CallState::Answered { result, .. } => Some((&*call.signature, result)),
            _ => None,
        })
    }

    /// Returns the answers, in call order.
    pub(crate) fn into_messages(self) -> impl Iterator<Item = Message> {
        self.calls.into_iter().filter_map(|call| match call.state {
            CallState::Answered { message, .. } => Some(message),
            _ => None,
        })
    }
}

impl Batch {
    pub(crate) fn new(responded: u64, calls: &[ToolCall], definition: &AgentDefinition) -> Self {
        let calls = calls.iter().map(|call| Call {
            id: call.id.clone(),
            tool: Arc::clone(&call.name),
            arguments: call.arguments.clone(),
            signature: signature_of(definition, &call.name, &call.arguments),
            stored: None,
            settled: None,
            asking: None,
            state: CallState::Asked,
        });
        let calls: Vec<Call> = calls.collect();
        Self {
            responded,
            signature: batch_signature(calls.iter().map(|call| &call.signature)),
            calls,
            cancelled: false,
            is_short: false,
            is_copied: false,
            is_doubtful: false,
            stopping: None,
        }
    }

    /// Returns what makes another batch the same.
    pub(crate) const fn signature(&self) -> &Arc<str> {
        &self.signature
    }

    /// Returns what makes another call the same, call by call.
    pub(crate) fn signatures(&self) -> impl Iterator<Item = &Arc<str>> {
        self.calls.iter().map(|call| &call.signature)
    }

    /// Returns the seq under which what belongs to a call stands.
    pub(crate) fn cause_of(&self, id: &CallId) -> Option<u64> {
        self.find(id).ok().map(|place| self.cause_at(place))
    }

    pub(crate) fn cause_at(&self, place: Place) -> u64 {
        match self.calls[place.0].state {
            CallState::Held { requested, .. } | CallState::Open { requested, .. } => requested,
            CallState::Decided { decided, .. } => decided,
            CallState::Asked | CallState::Answered { .. } => self.responded,
        }
    }

    /// Returns id and tool of a call.
    pub(crate) fn call_at(&self, place: Place) -> (CallId, Arc<str>) {
        let call = &self.calls[place.0];
        (call.id.clone(), Arc::clone(&call.tool))
    }

    pub(crate) fn is_running(&self, id: &CallId) -> bool {
        self.find(id).is_ok_and(|place| matches!(self.calls[place.0].state, CallState::Open { .. }))
    }

    /// Returns id and tool of the calls that may be running.
    pub(crate) fn running(&self) -> impl Iterator<Item = (&CallId, &Arc<str>)> {
        let is_open = |call: &&Call| matches!(call.state, CallState::Open { .. });
        self.calls.iter().filter(is_open).map(|call| (&call.id, &call.tool))
    }

    /// Returns the calls that may be running, each with the seq of its request.
    pub(crate) fn requested(&self) -> impl Iterator<Item = (u64, &CallId, &Arc<str>)> {
        self.calls.iter().filter_map(|call| match call.state {
            CallState::Open { requested, .. } => Some((requested, &call.id, &call.tool)),
            _ => None,
        })
    }

    /// Returns the approvals that are open.
    pub(crate) fn held(&self) -> impl Iterator<Item = &Approval> {
        self.calls.iter().filter_map(|call| match &call.state {
            CallState::Held { approval, .. } => Some(approval),
            _ => None,
        })
    }

    /// Returns what running calls ask people.
    pub(crate) fn asked(&self) -> impl Iterator<Item = &Approval> {
        self.calls.iter().filter_map(|call| call.asking.as_ref().map(|asking| &asking.approval))
    }

    /// The running call asks a person.
    pub(crate) fn ask(&mut self, place: Place, approval: Approval, requested: u64) {
        self.calls[place.0].asking = Some(Box::new(Asking { approval, requested }));
    }

    /// The call asks nothing any more. Returns what it asked.
    pub(crate) fn end_asking(&mut self, place: Place) -> Option<(Approval, u64)> {
        let asking = self.calls[place.0].asking.take()?;
        Some((asking.approval, asking.requested))
    }

    /// No call asks anything any more. Returns what was asked.
    pub(crate) fn end_all_asking(&mut self) -> Vec<(Approval, u64)> {
        let places = (0..self.calls.len()).map(Place);
        places.filter_map(|place| self.end_asking(place)).collect()
    }

    fn asking_at(&self, place: Place) -> Option<Held> {
        let Asking { approval, requested } = &**self.calls[place.0].asking.as_ref()?;
        Some(Held { place, approval: approval.clone(), requested: *requested })
    }

    /// Is nothing in flight but approvals?
    pub(crate) fn is_idle(&self) -> bool {
        self.held().next().is_some() && self.is_idle_but(|_| false)
    }

    /// Is nothing in flight but approvals, and calls of which this is true?
    pub(crate) fn is_idle_but(&self, waits: impl Fn(&CallId) -> bool) -> bool {
        self.calls.iter().all(|call| match call.state {
            CallState::Held { .. } | CallState::Answered { .. } => true,
            CallState::Open { .. } => call.asking.is_none() && waits(&call.id),
            CallState::Asked | CallState::Decided { .. } => false,
        })
    }

    /// Returns how many executions calls may need that are not of tools that only dispatch.
    pub(crate) fn executions_kept(&self, dispatches: impl Fn(&str) -> bool) -> u32 {
        let kept = self.calls.iter().map(|call| match call.state {
            CallState::Asked | CallState::Held { .. } | CallState::Decided { .. } => 1,
            CallState::Open { .. } if dispatches(&call.tool) => 0,
            CallState::Open { .. } => RETRIES_KEPT,
            CallState::Answered { .. } => 0,
        });
        kept.fold(0, u32::saturating_add)
    }

    /// Is it a copy that has not begun to go on?
    pub(crate) const fn is_copied(&self) -> bool {
        self.is_copied
    }

    pub(crate) const fn is_short(&self) -> bool {
        self.is_short
    }

    pub(crate) const fn set_short(&mut self, is_short: bool) {
        self.is_short = is_short;
    }

    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Returns the calls that have no answer.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = (&CallId, &Arc<str>)> {
        let is_open = |call: &&Call| !matches!(call.state, CallState::Answered { .. });
        self.calls.iter().filter(is_open).map(|call| (&call.id, &call.tool))
    }

    /// Returns the effect of a call that is running.
    pub(crate) fn effect_of(&self, id: &CallId) -> Option<EffectId> {
        match self.calls.iter().find(|call| call.id == *id)?.state {
            CallState::Open { effect, .. } => Some(effect),
            _ => None,
        }
    }

    /// The call waits for a person now.
    pub(crate) fn hold(&mut self, place: Place, approval: Approval, requested: u64) {
        self.calls[place.0].state = CallState::Held { approval, requested };
    }

    /// Returns the other calls with the same arguments that wait for a person.
    pub(crate) fn held_like(&self, held: &Held, has_same: impl Fn(&JsonText) -> bool) -> Vec<Held> {
        let is_alike = |other: &Held| {
            other.place != held.place
                && other.approval.tool == held.approval.tool
                && has_same(&other.approval.arguments)
        };
        let places = (0..self.calls.len()).map(Place);
        places.filter_map(|place| self.held_at(place)).filter(is_alike).collect()
    }

    fn held_at(&self, place: Place) -> Option<Held> {
        match &self.calls[place.0].state {
            CallState::Held { approval, requested } => {
                Some(Held { place, approval: approval.clone(), requested: *requested })
            }
            _ => None,
        }
    }

    /// A person agreed to the call.
    pub(crate) fn agree(
        &mut self,
        place: Place,
        approval: Approval,
        data: Option<JsonText>,
        changed: bool,
        decided: u64,
    ) {
        self.calls[place.0].state = CallState::Decided { approval, data, changed, decided };
    }

    /// The call is as before its admission.
    pub(crate) fn unask(&mut self, place: Place) {
        self.calls[place.0].state = CallState::Asked;
    }

    /// The calls that people agreed to are as before their admission, where this is true of the approval.
    pub(crate) fn unask_decided(&mut self, is_void: impl Fn(&Approval) -> bool) {
        for call in &mut self.calls {
            if matches!(&call.state, CallState::Decided { approval, .. } if is_void(approval)) {
                call.state = CallState::Asked;
            }
        }
    }

    /// Returns the data that a person gave who agreed to the call.
    pub(crate) fn data_at(&self, place: Place) -> Option<&JsonText> {
        match &self.calls[place.0].state {
            CallState::Decided { data, .. } => data.as_ref(),
            _ => None,
        }
    }

    /// The call begins.
    pub(crate) fn begin(
        &mut self,
        place: Place,
        run: &ToolRun,
        requested: u64,
        definition: &AgentDefinition,
    ) {
        let call = &mut self.calls[place.0];
        let signature = match call.arguments == run.arguments {
            true => Arc::clone(&call.signature),
            false => signature_of(definition, &run.tool, &run.arguments),
        };
        call.state = CallState::Open { effect: run.id, requested, signature };
    }

    /// The call begins again, as another effect.
    pub(crate) fn rerun(&mut self, place: Place, again: EffectId) -> CallId {
        let call = &mut self.calls[place.0];
        if let CallState::Open { effect, .. } = &mut call.state {
            *effect = again;
            call.stored = None;
        }
        call.id.clone()
    }

    /// Remembers where the error of a call is stored.
    pub(crate) fn store(&mut self, place: Place, error: ErrorId) {
        self.calls[place.0].stored = Some(error);
    }

    pub(crate) fn answering(&self, place: Place) -> Answering<'_> {
        match &self.calls[place.0].state {
            CallState::Open { requested, signature, .. } => {
                Answering::Ran { requested: *requested, signature }
            }
            _ => Answering::Refused { cause: self.cause_at(place) },
        }
    }

    /// Fails the run once a call has its answer; the first reason counts.
    pub(crate) fn stop_after(&mut self, call: CallId, cause: u64, failure: FailureCause) {
        self.stopping.get_or_insert((call, StoppedByHook { cause, failure }));
    }

    /// Takes the answer of a call. Returns what stops the run now.
    pub(crate) fn answer(
        &mut self,
        place: Place,
        responded: &ToolResponded,
    ) -> Option<StoppedByHook> {
        let call = &mut self.calls[place.0];
        // A call that a person agreed to has not begun either.
        if matches!(call.state, CallState::Asked | CallState::Decided { .. }) {
            self.cancelled |=
                responded.error.as_ref().is_some_and(|error| error.reason == TOOL_CANCELLED);
        }
        call.state = CallState::Answered {
            message: tool_message(responded),
            result: result_digest(responded),
        };
        self.stopping.take_if(|(after, _)| *after == responded.call_id).map(|(_, stop)| stop)
    }

    /// Returns what the batch came to, once every call has its answer.
    pub(crate) fn close(&mut self) -> Option<Closed> {
        if !self.calls.iter().all(|call| matches!(call.state, CallState::Answered { .. })) {
            return None;
        }
        let calls = std::mem::take(&mut self.calls);
        Some(Closed { signature: Arc::clone(&self.signature), cancelled: self.cancelled, calls })
    }

    /// Gives up the batch: the message of each call, or id and tool of one without an answer.
    pub(crate) fn give_up(&mut self) -> impl Iterator<Item = Result<Message, (CallId, Arc<str>)>> {
        std::mem::take(&mut self.calls).into_iter().map(|call| match call.state {
            CallState::Answered { message, .. } => Ok(message),
            _ => Err((call.id, call.tool)),
        })
    }

    /// Admits again what people were asked about: their answers were for another run.
    pub(crate) fn ask_anew(&mut self) {
        self.is_copied = true;
        for call in &mut self.calls {
            if matches!(call.state, CallState::Held { .. } | CallState::Decided { .. }) {
                call.state = CallState::Asked;
            }
        }
    }
}

/// Returns what makes another call the same: its tool, and its arguments as the tool takes them.
fn signature_of(definition: &AgentDefinition, tool: &str, arguments: &JsonText) -> Arc<str> {
    shared_signature(tool, &definition.taken(tool, arguments))
}
