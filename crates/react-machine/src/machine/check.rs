//! Checks which facts fit the state of a run; a fact that does not is refused before anything changes.

use layer0::code;
use layer0::event::{ApprovalRequested, EventKind, OperatorDispatched, RunRecovered};
use layer0::id::CallId;

use super::step::{HookStop, Step};
use super::{CANCEL, INPUT, Run};
use crate::denials::approval_id;
use crate::io::{EffectId, Misuse};
use crate::phase::batch::{Batch, Place, Sorted};
use crate::phase::{Phase, call_of};

impl Run {
    /// Returns the step of a fact that fits.
    pub(super) fn check<'p>(
        &self,
        phase: &'p mut Phase,
        effect: Option<EffectId>,
        fact: EventKind,
    ) -> Result<Step<'p>, Misuse> {
        use EventKind as Fact;

        let event = fact.event_type();
        let unexpected = Misuse::Unexpected { event, state: phase.name() };
        if is_decision(&fact) {
            return Err(Misuse::Decision(event));
        }
        match (phase, fact) {
            (Phase::Done(finish), Fact::RunReopened(reopened)) => {
                self.check_reopened(finish, &reopened)?;
                Ok(Step::Reopened(finish.clone(), reopened))
            }
            (phase, Fact::ToolResolved(resolved)) => self.check_settlement(phase, resolved),
            (Phase::Done(_), Fact::ToolProbed(probed)) => self.check_late_probe(probed),
            (Phase::Done(_), _) => Err(Misuse::Finished(event)),
            (Phase::New, Fact::RunStarted(started)) => Ok(Step::Start(started)),
            (Phase::New, _) | (_, Fact::RunStarted(_)) => Err(unexpected),
            (Phase::Asking(turn), Fact::ModelAttempted(attempted)) => {
                turn.check_attempt(effect, &attempted)?;
                Ok(Step::ModelAttempted(turn, attempted))
            }
            (Phase::Asking(turn), Fact::ModelResponded(responded)) => {
                turn.check_answer(effect, event, responded.call)?;
                Ok(Step::ModelResponded(*turn, responded))
            }
            (Phase::Asking(turn), Fact::ModelFailed(failed)) => {
                turn.check_answer(effect, event, failed.call)?;
                Ok(Step::ModelFailed(*turn, failed))
            }
            (Phase::Asking(turn), Fact::BudgetExhausted(exhausted)) => {
                turn.check_effect(effect)?;
                match exhausted.reason == code::BUDGET_COST_USD {
                    true => Ok(Step::Limited(*turn, exhausted)),
                    false => Err(Misuse::Decision(event)),
                }
            }
            // All other budgets belong to the machine.
            (_, Fact::BudgetExhausted(_)) => Err(Misuse::Decision(event)),
            (Phase::Working(batch), Fact::ToolRequested(requested)) => {
                let place = batch.check_request(&requested, self.meter.next_execution())?;
                self.meter.check_execution(event)?;
                Ok(Step::ToolRequested(batch, place, requested))
            }
            (Phase::Working(batch), Fact::ToolAttempted(attempted)) => {
                let place = batch.check_running(event, &attempted.call_id)?;
                self.meter.check_execution(event)?;
                Ok(Step::ToolAttempted(batch, place, attempted))
            }
            (Phase::Working(batch), Fact::ToolResponded(responded)) => {
                self.meter.check_answer(&responded.call_id)?;
                let place = batch.check_answer(effect, &responded)?;
                Ok(Step::ToolResponded(batch, place, responded))
            }
            (Phase::Working(batch), Fact::ErrorStored(stored)) => {
                let place = batch.check_store(&stored.call_id)?;
                Ok(Step::ErrorStored(batch, place, stored))
            }
            (phase, Fact::OperatorDispatched(dispatched)) => {
                let (cause, call) = self.check_dispatched(phase, &dispatched)?;
                Ok(Step::Dispatched(cause, call, dispatched))
            }
            (_, Fact::OperatorWaiting(waiting)) => {
                self.meter.check_open(event, &waiting.run)?;
                Ok(Step::WaitingBelow(waiting))
            }
            (phase, Fact::BudgetGranted(granted)) if granted.run == self.id => {
                phase.check_granted()?;
                Ok(Step::Granted(phase, granted))
            }
            (_, Fact::BudgetGranted(granted)) => {
                self.meter.check_open(event, &granted.run)?;
                Ok(Step::GrantedBelow(granted))
            }
            (_, Fact::OperatorReturned(returned)) => {
                self.meter.check_open(event, &returned.run)?;
                Ok(Step::Returned(returned))
            }
            (Phase::Recalling, Fact::MemoryRead(read)) => Ok(Step::MemoryRead(read)),
            (Phase::Recalling, Fact::MemoryDegraded(degraded)) => Ok(Step::MemoryUnread(degraded)),
            (
                Phase::Memorizing(stopped),
                note @ (Fact::MemoryWrote(_) | Fact::MemoryDegraded(_)),
            ) => Ok(Step::MemoryWrote(stopped, note)),
            (phase, Fact::HookPassed(passed)) => {
                Ok(Step::HookPassed(phase.check_passed(&passed)?, passed))
            }
            (phase, Fact::HookAborted(aborted)) => {
                phase.check_hook(event, &aborted.point)?;
                Ok(Step::HookStopped(phase, HookStop::Aborted(aborted)))
            }
            (phase, Fact::HookFailed(failed)) if !failed.fail_open => {
                phase.check_hook(event, &failed.point)?;
                Ok(Step::HookStopped(phase, HookStop::Failed(failed)))
            }
            (Phase::Working(batch), Fact::ApprovalRequested(asked)) => {
                let place = self.check_asked(batch, &asked)?;
                Ok(Step::Asked(batch, place, asked))
            }
            (Phase::Working(batch), Fact::ApprovalGranted(granted)) => {
                let held = batch.check_approval(&granted.approval_id, &granted.call_id)?;
                held.check_by(&granted.by)?;
                held.check_data(&granted)?;
                held.check_arguments(&granted)?;
                Ok(Step::ApprovalGranted(batch, held, granted))
            }
            (Phase::Working(batch), Fact::ApprovalDenied(denied)) => {
                let held = batch.check_approval(&denied.approval_id, &denied.call_id)?;
                match denied.reason == code::APPROVAL_EXPIRED {
                    true => held.check_expiry()?,
                    false => held.check_by(&denied.by)?,
                }
                Ok(Step::ApprovalDenied(batch, held, denied))
            }
            (_, Fact::ApprovalGranted(granted)) => Err(Misuse::UnknownApproval(granted.approval_id)),
            (_, Fact::ApprovalDenied(denied)) => Err(Misuse::UnknownApproval(denied.approval_id)),
            (phase, Fact::RunRecovered(recovered)) => {
                let sorted = self.check_recovered(phase, &recovered)?;
                Ok(Step::Recovered(phase, sorted, recovered))
            }
            (phase, Fact::RunResumed(resumed)) => {
                let adopted = self.check_adopted(resumed.agent.as_deref())?;
                Ok(Step::Resumed(phase, resumed, adopted))
            }
            (phase, Fact::RunParked(parked)) => self.check_parked(phase, effect, parked),
            (phase, Fact::SignalReceived(signal))
                if &*signal.name == CANCEL && !phase.is_ending() =>
            {
                Ok(Step::Cancelled(phase, signal))
            }
            (_, Fact::SignalReceived(signal)) if &*signal.name == INPUT => Ok(Step::Input(signal)),
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
                Ok(Step::Noted(phase.cause_of(&note), note))
            }
        }
    }

    /// Checks whether the call may ask a person this, under the next id.
    fn check_asked(&self, batch: &Batch, asked: &ApprovalRequested) -> Result<Place, Misuse> {
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
        phase: &Phase,
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
    fn check_recovered(&self, phase: &Phase, recovered: &RunRecovered) -> Result<Sorted, Misuse> {
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
        match call_of(note) {
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
