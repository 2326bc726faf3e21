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

pub(crate) use unfinished::{Sorted, UnfinishedCalls};

/// Number of executions reserved for the caller for each of its running tools: as many as the runtime retries one by
/// default.
const RETRIES_KEPT: u32 = 2;

/// The calls of one model answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallBatch {
    /// The seq of the answer that requested them.
    responded: u64,
    /// Signature by which batches are equal.
    signature: Arc<str>,
    calls: Vec<BatchCall>,
    /// Whether the budget kept a call from running.
    cancelled: bool,
    /// Whether the caller has to give more of its budget before the calls are processed.
    is_short: bool,
    /// Whether the run is a fork, whose open dispatches belong to the original.
    is_copied: bool,
    /// Whether calls that have not begun according to the record may have run in lost events.
    is_doubtful: bool,
    /// The call after whose answer the run stops, with the stop.
    stopping: Option<(CallId, StoppedByHook)>,
}

/// The stop of a run by a hook.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoppedByHook {
    /// The seq of the hook's event.
    pub(crate) cause: u64,
    pub(crate) failure: FailureCause,
}

#[derive(Debug, Clone, PartialEq)]
struct BatchCall {
    id: CallId,
    tool: Arc<str>,
    /// Arguments of the model.
    arguments: JsonText,
    /// Signature by which calls are equal, from the model's arguments.
    signature: Arc<str>,
    /// Id of the stored error of its execution.
    stored: Option<ErrorId>,
    /// Settlement by a person before its answer.
    settled: Option<Box<ToolResolved>>,
    /// Open request to a person while it is running.
    asking: Option<Box<PersonRequest>>,
    state: CallState,
}

/// The request of a running call to a person, with its seq.
#[derive(Debug, Clone, PartialEq)]
struct PersonRequest {
    approval: Approval,
    requested: u64,
}

#[derive(Debug, Clone, PartialEq)]
enum CallState {
    /// Not yet admitted.
    Asked,
    /// Waits for a person; `requested` is the seq of the approval's request.
    Held { approval: Approval, requested: u64 },
    /// A person approved it, with the requested data; the runtime acts on that. `decided` is the seq of the decision.
    Decided { approval: Approval, data: Option<JsonText>, changed: bool, decided: u64 },
    /// May have begun; the signature is from the arguments it was given.
    Open { effect: EffectId, requested: u64, signature: Arc<str> },
    /// Has its answer; the message waits for the rest of the batch.
    Answered { message: Message, result: u64 },
}

/// The position of a call in its batch. Only a check returns one, so that it is always valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallIndex(usize);

/// A call that waits for a person, or that asks one while it is running.
pub(crate) struct HeldCall {
    pub(crate) place: CallIndex,
    pub(crate) approval: Approval,
    /// The seq of the approval's request.
    pub(crate) requested: u64,
}

/// The origin of a call's answer, and its cause.
pub(crate) enum AnswerOrigin<'b> {
    /// The tool ran; the signature is from the arguments it was given.
    Ran { requested: u64, signature: &'b Arc<str> },
    /// The tool did not run.
    Refused { cause: u64 },
}

/// A batch whose calls all have their answers.
pub(crate) struct Closed {
    signature: Arc<str>,
    cancelled: bool,
    calls: Vec<BatchCall>,
}

impl Closed {
    pub(crate) const fn signature(&self) -> &Arc<str> {
        &self.signature
    }

    /// Returns whether the budget kept a call from running.
    pub(crate) const fn cancelled(&self) -> bool {
        self.cancelled
    }

    /// Returns the result of each call, by its signature.
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

impl CallBatch {
    pub(crate) fn new(responded: u64, calls: &[ToolCall], definition: &AgentDefinition) -> Self {
        let calls = calls.iter().map(|call| BatchCall {
            id: call.id.clone(),
            tool: Arc::clone(&call.name),
            arguments: call.arguments.clone(),
            signature: compute_signature(definition, &call.name, &call.arguments),
            stored: None,
            settled: None,
            asking: None,
            state: CallState::Asked,
        });
        let calls: Vec<BatchCall> = calls.collect();
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

    /// Returns the signature by which batches are equal.
    pub(crate) const fn signature(&self) -> &Arc<str> {
        &self.signature
    }

    /// Returns the signatures of the calls.
    pub(crate) fn signatures(&self) -> impl Iterator<Item = &Arc<str>> {
        self.calls.iter().map(|call| &call.signature)
    }

    /// Returns the seq of the entry that causes further entries about a call.
    pub(crate) fn find_cause(&self, id: &CallId) -> Option<u64> {
        self.find(id).ok().map(|place| self.cause_at(place))
    }

    pub(crate) fn cause_at(&self, place: CallIndex) -> u64 {
        match self.calls[place.0].state {
            CallState::Held { requested, .. } | CallState::Open { requested, .. } => requested,
            CallState::Decided { decided, .. } => decided,
            CallState::Asked | CallState::Answered { .. } => self.responded,
        }
    }

    /// Returns id and tool of a call.
    pub(crate) fn call_at(&self, place: CallIndex) -> (CallId, Arc<str>) {
        let call = &self.calls[place.0];
        (call.id.clone(), Arc::clone(&call.tool))
    }

    pub(crate) fn is_running(&self, id: &CallId) -> bool {
        self.find(id).is_ok_and(|place| matches!(self.calls[place.0].state, CallState::Open { .. }))
    }

    /// Returns id and tool of the calls that may be running.
    pub(crate) fn running(&self) -> impl Iterator<Item = (&CallId, &Arc<str>)> {
        let is_open = |call: &&BatchCall| matches!(call.state, CallState::Open { .. });
        self.calls.iter().filter(is_open).map(|call| (&call.id, &call.tool))
    }

    /// Returns the calls that may be running, each with the seq of its request.
    pub(crate) fn requested_calls(&self) -> impl Iterator<Item = (u64, &CallId, &Arc<str>)> {
        self.calls.iter().filter_map(|call| match call.state {
            CallState::Open { requested, .. } => Some((requested, &call.id, &call.tool)),
            _ => None,
        })
    }

    /// Returns the open approvals of held calls.
    pub(crate) fn held_approvals(&self) -> impl Iterator<Item = &Approval> {
        self.calls.iter().filter_map(|call| match &call.state {
            CallState::Held { approval, .. } => Some(approval),
            _ => None,
        })
    }

    /// Returns the open requests of running calls to people.
    pub(crate) fn person_requests(&self) -> impl Iterator<Item = &Approval> {
        self.calls.iter().filter_map(|call| call.asking.as_ref().map(|asking| &asking.approval))
    }

    /// Opens the request of a running call to a person.
    pub(crate) fn ask(&mut self, place: CallIndex, approval: Approval, requested: u64) {
        self.calls[place.0].asking = Some(Box::new(PersonRequest { approval, requested }));
    }

    /// Closes the request of a call and returns it.
    pub(crate) fn end_asking(&mut self, place: CallIndex) -> Option<(Approval, u64)> {
        let asking = self.calls[place.0].asking.take()?;
        Some((asking.approval, asking.requested))
    }

    /// Closes the requests of all calls and returns them.
    pub(crate) fn end_all_asking(&mut self) -> Vec<(Approval, u64)> {
        let places = (0..self.calls.len()).map(CallIndex);
        places.filter_map(|place| self.end_asking(place)).collect()
    }

    fn asking_at(&self, place: CallIndex) -> Option<HeldCall> {
        let PersonRequest { approval, requested } = &**self.calls[place.0].asking.as_ref()?;
        Some(HeldCall { place, approval: approval.clone(), requested: *requested })
    }

    /// Returns whether only approvals are in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.held_approvals().next().is_some() && self.is_idle_but(|_| false)
    }

    /// Returns whether only approvals are in flight, and calls for which `waits` is true.
    pub(crate) fn is_idle_but(&self, waits: impl Fn(&CallId) -> bool) -> bool {
        self.calls.iter().all(|call| match call.state {
            CallState::Held { .. } | CallState::Answered { .. } => true,
            CallState::Open { .. } => call.asking.is_none() && waits(&call.id),
            CallState::Asked | CallState::Decided { .. } => false,
        })
    }

    /// Returns the number of executions that calls may need whose tools do not only dispatch.
    pub(crate) fn executions_kept(&self, dispatches: impl Fn(&str) -> bool) -> u32 {
        let kept = self.calls.iter().map(|call| match call.state {
            CallState::Asked | CallState::Held { .. } | CallState::Decided { .. } => 1,
            CallState::Open { .. } if dispatches(&call.tool) => 0,
            CallState::Open { .. } => RETRIES_KEPT,
            CallState::Answered { .. } => 0,
        });
        kept.fold(0, u32::saturating_add)
    }

    /// Returns whether it is a fork that has not recovered yet.
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

    /// Returns the calls without an answer.
    pub(crate) fn unanswered_calls(&self) -> impl Iterator<Item = (&CallId, &Arc<str>)> {
        let is_open = |call: &&BatchCall| !matches!(call.state, CallState::Answered { .. });
        self.calls.iter().filter(is_open).map(|call| (&call.id, &call.tool))
    }

    /// Returns the effect of a running call.
    pub(crate) fn find_effect(&self, id: &CallId) -> Option<EffectId> {
        match self.calls.iter().find(|call| call.id == *id)?.state {
            CallState::Open { effect, .. } => Some(effect),
            _ => None,
        }
    }

    /// Holds the call until a person decides.
    pub(crate) fn hold(&mut self, place: CallIndex, approval: Approval, requested: u64) {
        self.calls[place.0].state = CallState::Held { approval, requested };
    }

    /// Returns the other held calls with the same arguments.
    pub(crate) fn held_like(
        &self,
        held: &HeldCall,
        has_same: impl Fn(&JsonText) -> bool,
    ) -> Vec<HeldCall> {
        let is_alike = |other: &HeldCall| {
            other.place != held.place
                && other.approval.tool == held.approval.tool
                && has_same(&other.approval.arguments)
        };
        let places = (0..self.calls.len()).map(CallIndex);
        places.filter_map(|place| self.held_at(place)).filter(is_alike).collect()
    }

    fn held_at(&self, place: CallIndex) -> Option<HeldCall> {
        match &self.calls[place.0].state {
            CallState::Held { approval, requested } => {
                Some(HeldCall { place, approval: approval.clone(), requested: *requested })
            }
            _ => None,
        }
    }

    /// Records the approval of the call by a person.
    pub(crate) fn agree(
        &mut self,
        place: CallIndex,
        approval: Approval,
        data: Option<JsonText>,
        changed: bool,
        decided: u64,
    ) {
        self.calls[place.0].state = CallState::Decided { approval, data, changed, decided };
    }

    /// Resets the call to its state before admission.
    pub(crate) fn unask(&mut self, place: CallIndex) {
        self.calls[place.0].state = CallState::Asked;
    }

    /// Resets approved calls to their state before admission if `is_void` is true of the approval.
    pub(crate) fn unask_decided(&mut self, is_void: impl Fn(&Approval) -> bool) {
        for call in &mut self.calls {
            if matches!(&call.state, CallState::Decided { approval, .. } if is_void(approval)) {
                call.state = CallState::Asked;
            }
        }
    }

    /// Returns the data of the person who approved the call.
    pub(crate) fn data_at(&self, place: CallIndex) -> Option<&JsonText> {
        match &self.calls[place.0].state {
            CallState::Decided { data, .. } => data.as_ref(),
            _ => None,
        }
    }

    /// Records the start of the call.
    pub(crate) fn begin(
        &mut self,
        place: CallIndex,
        run: &ToolRun,
        requested: u64,
        definition: &AgentDefinition,
    ) {
        let call = &mut self.calls[place.0];
        let signature = match call.arguments == run.arguments {
            true => Arc::clone(&call.signature),
            false => compute_signature(definition, &run.tool, &run.arguments),
        };
        call.state = CallState::Open { effect: run.id, requested, signature };
    }

    /// Starts the call again, as another effect.
    pub(crate) fn rerun(&mut self, place: CallIndex, again: EffectId) -> CallId {
        let call = &mut self.calls[place.0];
        if let CallState::Open { effect, .. } = &mut call.state {
            *effect = again;
            call.stored = None;
        }
        call.id.clone()
    }

    /// Stores the id of the stored error of a call.
    pub(crate) fn store(&mut self, place: CallIndex, error: ErrorId) {
        self.calls[place.0].stored = Some(error);
    }

    pub(crate) fn answering(&self, place: CallIndex) -> AnswerOrigin<'_> {
        match &self.calls[place.0].state {
            CallState::Open { requested, signature, .. } => {
                AnswerOrigin::Ran { requested: *requested, signature }
            }
            _ => AnswerOrigin::Refused { cause: self.cause_at(place) },
        }
    }

    /// Sets the failure of the run after a call has its answer; the first one counts.
    pub(crate) fn stop_after(&mut self, call: CallId, cause: u64, failure: FailureCause) {
        self.stopping.get_or_insert((call, StoppedByHook { cause, failure }));
    }

    /// Records the answer of a call. Returns the stop of the run, if it stops now.
    pub(crate) fn answer(
        &mut self,
        place: CallIndex,
        responded: &ToolResponded,
    ) -> Option<StoppedByHook> {
        let call = &mut self.calls[place.0];
        // An approved call has not begun either.
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

    /// Returns the closed batch once every call has its answer.
    pub(crate) fn close(&mut self) -> Option<Closed> {
        if !self.calls.iter().all(|call| matches!(call.state, CallState::Answered { .. })) {
            return None;
        }
        let calls = std::mem::take(&mut self.calls);
        Some(Closed { signature: Arc::clone(&self.signature), cancelled: self.cancelled, calls })
    }

    /// Gives up the batch and returns the message of each call, or id and tool of a call without an answer.
    pub(crate) fn give_up(&mut self) -> impl Iterator<Item = Result<Message, (CallId, Arc<str>)>> {
        std::mem::take(&mut self.calls).into_iter().map(|call| match call.state {
            CallState::Answered { message, .. } => Ok(message),
            _ => Err((call.id, call.tool)),
        })
    }

    /// Resets calls with approvals, so that they are admitted again: the approvals were for another run.
    pub(crate) fn ask_anew(&mut self) {
        self.is_copied = true;
        for call in &mut self.calls {
            if matches!(call.state, CallState::Held { .. } | CallState::Decided { .. }) {
                call.state = CallState::Asked;
            }
        }
    }
}

/// Returns the signature by which calls are equal: from the tool, and from the arguments as the tool takes them.
fn compute_signature(definition: &AgentDefinition, tool: &str, arguments: &JsonText) -> Arc<str> {
    shared_signature(tool, &definition.canonicalize_arguments(tool, arguments))
}
