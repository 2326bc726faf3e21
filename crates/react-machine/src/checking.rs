//! Which facts fit a run as it is; what does not is refused before anything changes.

use layer0::event::{ErrorStored, EventKind, ToolAttempted, ToolRequested, ToolResponded};

use crate::batch::{Batch, CallState};
use crate::io::{EffectId, Misuse};
use crate::machine::{Machine, Phase, call_of};

/// What is said of a call that waits for a person.
const HELD: &str = "a person has to agree to the call";
/// What is said of a fact about a call that names another tool.
const OTHER_TOOL: &str = "the call is of another tool";

impl Machine {
    /// Refuses what does not fit, before anything changes.
    pub(crate) fn check(&self, effect: Option<EffectId>, fact: &EventKind) -> Result<(), Misuse> {
        let event = fact.event_type();
        let unexpected = Misuse::Unexpected { event, state: self.phase.name() };
        if is_decision(fact) {
            return Err(Misuse::Decision(event));
        }
        match (&self.phase, fact) {
            (Phase::Done(_), _) => Err(Misuse::Finished(event)),
            (Phase::New, EventKind::RunStarted(_)) => Ok(()),
            (Phase::New, _) | (_, EventKind::RunStarted(_)) => Err(unexpected),
            (Phase::Asking(turn), EventKind::ModelAttempted(attempted)) => {
                turn.check_attempt(effect, attempted)
            }
            (Phase::Asking(turn), EventKind::ModelResponded(responded)) => {
                turn.check_answer(effect, event, responded.call)
            }
            (Phase::Asking(turn), EventKind::ModelFailed(failed)) => {
                turn.check_answer(effect, event, failed.call)
            }
            (Phase::Working(batch), EventKind::ToolRequested(requested)) => {
                batch.check_request(requested, self.usage.tool_calls + 1)
            }
            (Phase::Working(batch), EventKind::ToolResponded(responded)) => {
                batch.check_answer(effect, responded)
            }
            // A copy is made with `fork`, which knows what was cut off.
            (_, EventKind::RunForked(_)) => Err(unexpected),
            (_, EventKind::RunRecovered(recovered)) => self.check_recovered(recovered),
            (_, EventKind::HookAborted(aborted)) => self.check_hook(event, &aborted.point),
            (_, EventKind::HookFailed(failed)) if !failed.fail_open => {
                self.check_hook(event, &failed.point)
            }
            (_, EventKind::ApprovalGranted(granted)) => {
                self.check_approval(&granted.approval_id, &granted.call_id)
            }
            (_, EventKind::ApprovalDenied(denied)) => {
                self.check_approval(&denied.approval_id, &denied.call_id)
            }
            (Phase::Recalling, EventKind::MemoryRead(_) | EventKind::MemoryDegraded(_)) => Ok(()),
            (
                Phase::Memorizing { .. },
                EventKind::MemoryWrote(_) | EventKind::MemoryDegraded(_),
            ) => Ok(()),
            (
                _,
                EventKind::MemoryRead(_)
                | EventKind::MemoryWrote(_)
                | EventKind::MemoryDegraded(_)
                | EventKind::ModelAttempted(_)
                | EventKind::ModelResponded(_)
                | EventKind::ModelFailed(_)
                | EventKind::ToolRequested(_)
                | EventKind::ToolResponded(_),
            ) => Err(unexpected),
            // What is left only leaves a record.
            (phase, note) => self.check_note(phase, note),
        }
    }

    /// Refuses what belongs to no call of the run, or not to the call it names.
    fn check_note(&self, phase: &Phase, note: &EventKind) -> Result<(), Misuse> {
        match (phase, call_of(note)) {
            (_, Some(id)) if !self.call_ids.contains(id) => Err(Misuse::UnknownCall(id.clone())),
            (Phase::Working(batch), Some(_)) => batch.check_note(note),
            _ => Ok(()),
        }
    }
}

impl Batch {
    pub(crate) fn check_request(&self, requested: &ToolRequested, next: u32) -> Result<(), Misuse> {
        let call = self.find(&requested.call_id)?;
        let unexpected = |state| Err(Misuse::Unexpected { event: "tool.requested", state });
        if call.tool != requested.tool {
            return unexpected(OTHER_TOOL);
        }
        match &call.state {
            CallState::Decided { approval, .. } if approval.arguments != requested.arguments => {
                unexpected("a person decided on other arguments")
            }
            CallState::Asked | CallState::Decided { .. } if requested.execution == next => Ok(()),
            CallState::Asked | CallState::Decided { .. } => Err(Misuse::OutOfOrder {
                event: "tool.requested",
                actual: requested.execution,
                expected: next,
            }),
            CallState::Held { .. } => unexpected(HELD),
            CallState::Open { .. } => unexpected("the call is already running"),
            CallState::Answered { .. } => Err(Misuse::AlreadyAnswered(requested.call_id.clone())),
        }
    }

    pub(crate) fn check_answer(
        &self,
        answered: Option<EffectId>,
        responded: &ToolResponded,
    ) -> Result<(), Misuse> {
        let call = self.find(&responded.call_id)?;
        let unexpected = |state| Err(Misuse::Unexpected { event: "tool.responded", state });
        let open = match &call.state {
            CallState::Asked | CallState::Decided { .. } => None,
            CallState::Held { .. } => return unexpected(HELD),
            CallState::Open { effect, .. } => Some(*effect),
            CallState::Answered { .. } => {
                return Err(Misuse::AlreadyAnswered(responded.call_id.clone()));
            }
        };
        if call.tool != responded.tool {
            return unexpected(OTHER_TOOL);
        }
        if call.stored != responded.error.as_ref().and_then(|error| error.error_id.clone()) {
            return unexpected("its error is stored elsewhere, or not at all");
        }
        match answered {
            Some(effect) if open != Some(effect) => {
                Err(Misuse::Stale { epoch: effect.epoch, number: effect.number })
            }
            _ => Ok(()),
        }
    }

    /// Refuses what cannot belong to a call as it is.
    pub(crate) fn check_note(&self, note: &EventKind) -> Result<(), Misuse> {
        let event = note.event_type();
        match note {
            EventKind::ErrorStored(ErrorStored { call_id, .. }) => {
                let call = self.find(call_id)?;
                match (&call.state, &call.stored) {
                    (CallState::Answered { .. }, _) => {
                        Err(Misuse::AlreadyAnswered(call_id.clone()))
                    }
                    (_, Some(_)) => {
                        Err(Misuse::Unexpected { event, state: "its error is stored already" })
                    }
                    (_, None) => Ok(()),
                }
            }
            EventKind::ToolAttempted(ToolAttempted { call_id, .. }) => {
                match self.find(call_id)?.state {
                    CallState::Open { .. } | CallState::Answered { .. } => Ok(()),
                    CallState::Asked | CallState::Held { .. } | CallState::Decided { .. } => {
                        Err(Misuse::Unexpected { event, state: "the call is not running" })
                    }
                }
            }
            _ => Ok(()),
        }
    }

    /// Remembers what belongs to a call.
    pub(crate) fn note(&mut self, note: &EventKind) {
        if let EventKind::ErrorStored(ErrorStored { call_id, error_id, .. }) = note
            && let Some(call) = self.calls.iter_mut().find(|call| call.id == *call_id)
        {
            call.stored = Some(error_id.clone());
        }
    }
}

/// Is this an event only the machine writes? (`tool.responded` is written by both.)
const fn is_decision(fact: &EventKind) -> bool {
    matches!(
        fact,
        EventKind::RunWaiting(_)
            | EventKind::RunFinished(_)
            | EventKind::RunFailed(_)
            | EventKind::ModelRequested(_)
            | EventKind::ApprovalRequested(_)
            | EventKind::BudgetExhausted(_)
            | EventKind::GuardTripped(_)
            | EventKind::ContextCompacted(_)
    )
}
