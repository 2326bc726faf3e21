//! Checks which facts fit the state of a run; a fact that does not is refused before anything changes.

use layer0::code;
use layer0::event::{ApprovalRequested, EventKind, OperatorDispatched, RunRecovered};
use layer0::id::CallId;

use super::step::{HookStop, Transition};
use super::{CANCEL, INPUT, MachineState};
use crate::denials::approval_id;
use crate::io::{EffectId, Misuse};
use crate::phase::batch::{CallBatch, CallIndex, Sorted};
use crate::phase::{RunPhase, find_call_id};

impl MachineState {
    /// Returns the step of a fact that fits.
    pub(super) fn check<'p>(
        &self,
        phase: &'p mut RunPhase,
        effect: Option<EffectId>,
        fact: EventKind,
    ) -> Result<Transition<'p>, Misuse> {
        use EventKind as Fact;

        let event = fact.event_type();
        let unexpected = Misuse::Unexpected { event, state: phase.name() };
        if is_decision(&fact) {
            return Err(Misuse::Decision(event));
        }
        match (phase, fact) {
            (RunPhase::Done(finish), Fact::RunReopened(reopened)) => {
                self.check_reopened(finish, &reopened)?;
                Ok(Transition::Reopened(finish.clone(), reopened))
            }
            (phase, Fact::ToolResolved(resolved)) => self.check_settlement(phase, resolved),
            (RunPhase::Done(_), Fact::ToolProbed(probed)) => self.check_late_probe(probed),
            (RunPhase::Done(_), _) => Err(Misuse::Finished(event)),
            (RunPhase::New, Fact::RunStarted(started)) => Ok(Transition::Start(started)),
            (RunPhase::New, _) | (_, Fact::RunStarted(_)) => Err(unexpected),
            (RunPhase::Asking(turn), Fact::ModelAttempted(attempted)) => {
                turn.check_attempt(effect, &attempted)?;
                Ok(Transition::ModelAttempted(turn, attempted))
            }
            (RunPhase::Asking(turn), Fact::ModelResponded(responded)) => {
                turn.check_answer(effect, event, responded.call)?;
                Ok(Transition::ModelResponded(*turn, responded))
            }
            (RunPhase::Asking(turn), Fact::ModelFailed(failed)) => {
                turn.check_answer(effect, event, failed.call)?;
                Ok(Transition::ModelFailed(*turn, failed))
            }
            (RunPhase::Asking(turn), Fact::BudgetExhausted(exhausted)) => {
                turn.check_effect(effect)?;
                match exhausted.reason == code::BUDGET_COST_USD {
                    true => Ok(Transition::Limited(*turn, exhausted)),
                    false => Err(Misuse::Decision(event)),
                }
            }
            // All other budgets belong to the machine.
            (_, Fact::BudgetExhausted(_)) => Err(Misuse::Decision(event)),
            (RunPhase::Working(batch), Fact::ToolRequested(requested)) => {
                let place = batch.check_request(&requested, self.meter.next_execution())?;
                self.meter.check_execution(event)?;
                Ok(Transition::ToolRequested(batch, place, requested))
            }
            (RunPhase::Working(batch), Fact::ToolAttempted(attempted)) => {
                let place = batch.check_running(event, &attempted.call_id)?;
                self.meter.check_execution(event)?;
                Ok(Transition::ToolAttempted(batch, place, attempted))
            }
            (RunPhase::Working(batch), Fact::ToolResponded(responded)) => {
                self.meter.check_answer(&responded.call_id)?;
                let place = batch.check_answer(effect, &responded)?;
                Ok(Transition::ToolResponded(batch, place, responded))
            }
            (RunPhase::Working(batch), Fact::ErrorStored(stored)) => {
                let place = batch.check_store(&stored.call_id)?;
                Ok(Transition::ErrorStored(batch, place, stored))
            }
            (phase, Fact::OperatorDispatched(dispatched)) => {
                let (cause, call) = self.check_dispatched(phase, &dispatched)?;
                Ok(Transition::Dispatched(cause, call, dispatched))
            }
            (_, Fact::OperatorWaiting(waiting)) => {
                self.meter.check_open(event, &waiting.run)?;
                Ok(Transition::WaitingBelow(waiting))
            }
            (phase, Fact::BudgetGranted(granted)) if granted.run == self.id => {
                phase.check_granted()?;
                Ok(Transition::Granted(phase, granted))
            }
            (_, Fact::BudgetGranted(granted)) => {
                self.meter.check_open(event, &granted.run)?;
                Ok(Transition::GrantedBelow(granted))
            }
            (_, Fact::OperatorReturned(returned)) => {
                self.meter.check_open(event, &returned.run)?;
                Ok(Transition::Returned(returned))
            }
            (RunPhase::Recalling, Fact::MemoryRead(read)) => Ok(Transition::MemoryRead(read)),
            (RunPhase::Recalling, Fact::MemoryDegraded(degraded)) => Ok(Transition::MemoryUnread(degraded)),
            (
                RunPhase::Memorizing(stopped),
                note @ (Fact::MemoryWrote(_) | Fact::MemoryDegraded(_)),
            ) => Ok(Transition::MemoryWrote(stopped, note)),
            (phase, Fact::HookPassed(passed)) => {
                Ok(Transition::HookPassed(phase.check_passed(&passed)?, passed))
            }
            (phase, Fact::HookAborted(aborted)) => {
                phase.check_hook(event, &aborted.point)?;
                Ok(Transition::HookStopped(phase, HookStop::Aborted(aborted)))
            }
            (phase, Fact::HookFailed(failed)) if !failed.fail_open => {
                phase.check_hook(event, &failed.point)?;
                Ok(Transition::HookStopped(phase, HookStop::Failed(failed)))
            }
            (RunPhase::Working(batch), Fact::ApprovalRequested(asked)) => {
                let place = self.check_asked(batch, &asked)?;
                Ok(Transition::Asked(batch, place, asked))
            }
            (RunPhase::Working(batch), Fact::ApprovalGranted(granted)) => {
                let held = batch.check_approval(&granted.approval_id, &granted.call_id)?;
                held.check_by(&granted.by)?;
                held.check_data(&granted)?;
                held.check_arguments(&granted)?;
                Ok(Transition::ApprovalGranted(batch, held, granted))
            }
            (RunPhase::Working(batch), Fact::ApprovalDenied(denied)) => {
                let held = batch.check_approval(&denied.approval_id, &denied.call_id)?;
                match denied.reason == code::APPROVAL_EXPIRED {
                    true => held.check_expiry()?,
                    false => held.check_by(&denied.by)?,
                }
                Ok(Transition::ApprovalDenied(batch, held, denied))
            }
            (_, Fact::ApprovalGranted(granted)) => Err(Misuse::UnknownApproval(granted.approval_id)),
            (_, Fact::ApprovalDenied(denied)) => Err(Misuse::UnknownApproval(denied.approval_id)),
            (phase, Fact::RunRecovered(recovered)) => {
                let sorted = self.check_recovered(phase, &recovered)?;
                Ok(Transition::Recovered(phase, sorted, recovered))
            }
            (phase, Fact::RunResumed(resumed)) => {
                let adopted = self.check_adopted(resumed.agent.as_deref())?;
                Ok(Transition::Resumed(phase, resumed, adopted))
            }
            (phase, Fact::RunParked(parked)) => self.check_parked(phase, effect, parked),
            (phase, Fact::SignalReceived(signal))
                if &*signal.name == CANCEL && !phase.is_ending() =>
            {
                Ok(Transition::Cancelled(phase, signal))
            }
            (_, Fact::SignalReceived(signal)) if &*signal.name == INPUT => Ok(Transition::Input(signal)),
            (
                _,
                Fact::ApprovalRequested(_)
                | Fact::MemoryDegraded(_)
                | Fact::MemoryRead(_)
                | Fact::MemoryWrote(_)
                | Fact::ModelAttempted(_)
                | Fact::ModelFailed(_)
                | Fact::ModelResponded(_)
                // A fork is made with `fork`, which has the decisions that were cut off.
                | Fact::RunForked(_)
                | Fact::RunReopened(_)
                | Fact::ToolAttempted(_)
                | Fact::ToolRequested(_)
                | Fact::ToolResponded(_),
            ) => Err(unexpected),
            (phase, note) => {
                self.check_note(&note)?;
                Ok(Transition::Noted(phase.find_cause(&note), note))
            }
        }
    }

    /// Checks whether the call may ask a person this, under the next id.
    fn check_asked(
        &self,
        batch: &CallBatch,
        asked: &ApprovalRequested,
    ) -> Result<CallIndex, Misuse> {
        let (place, tool) = batch.check_ask(&asked.call_id)?;
        let unexpected = |state| Err(Misuse::Unexpected { event: "approval.requested", state });
        if *tool != asked.tool {
            return unexpected("the call is of another tool");
        }
        match asked.approval_id == approval_id(&self.id, self.events() + 1, &asked.call_id) {
            true => Ok(place),
            false => unexpected("the approval has another id"),
        }
    }

    fn check_dispatched(
        &self,
        phase: &RunPhase,
        dispatched: &OperatorDispatched,
    ) -> Result<(u64, CallId), Misuse> {
        let refused = |state| Err(Misuse::Unexpected { event: "operator.dispatched", state });
        let (Some(batch), Some(call_id)) = (phase.batch(), &dispatched.call_id) else {
            return refused("no call is running that it serves");
        };
        let Ok(place) = batch.check_running("operator.dispatched", call_id) else {
            return Err(Misuse::UnknownCall(call_id.clone()));
        };
        let again = self.meter.check_open("operator.dispatched", &dispatched.run);
        match again {
            Ok(before) if before.call_id != *call_id => refused("its run serves another call"),
            Ok(before) if dispatched.attempt <= before.attempt => {
                let (actual, expected) = (dispatched.attempt, before.attempt.saturating_add(1));
                Err(Misuse::OutOfOrder { event: "operator.dispatched", actual, expected })
            }
            Ok(_) | Err(_) => Ok((batch.cause_at(place), call_id.clone())),
        }
    }

    /// Checks that all open calls are sorted, and no others.
    fn check_recovered(
        &self,
        phase: &RunPhase,
        recovered: &RunRecovered,
    ) -> Result<Sorted, Misuse> {
        if let Some(batch) = phase.batch() {
            let goes_on = |id: &CallId, tool: &str| self.goes_on(id, tool);
            return batch.check_recovered(recovered, self.executions_left(), goes_on);
        }
        let RunRecovered { rerun, interrupted, probing, .. } = recovered;
        match rerun.iter().chain(interrupted).chain(probing).next() {
            Some(id) => Err(Misuse::UnknownCall(id.clone())),
            None => Ok(Sorted::default()),
        }
    }

    /// Refuses a note about a call that is not the run's.
    fn check_note(&self, note: &EventKind) -> Result<(), Misuse> {
        match find_call_id(note) {
            Some(id) if !self.conversation.knows(id) => Err(Misuse::UnknownCall(id.clone())),
            _ => Ok(()),
        }
    }
}

/// Returns whether only the machine writes this event. (`budget.exhausted` and `tool.responded` are written by both,
/// and so is `approval.requested`, which has a message if a running call asks.)
const fn is_decision(fact: &EventKind) -> bool {
    if let EventKind::ApprovalRequested(asked) = fact {
        return asked.message.is_none();
    }
    matches!(
        fact,
        EventKind::RunWaiting(_)
            | EventKind::RunFinished(_)
            | EventKind::RunFailed(_)
            | EventKind::ModelRequested(_)
            | EventKind::GuardTripped(_)
            | EventKind::ContextCompacted(_)
    )
}
