//! A child run whose allowance is used up, while its own budget is not: it waits until the caller gives it more, or
//! reports that nothing is left.

use layer0::event::{Actor, BudgetGranted, RunWaiting, WaitFor};

use super::{Machine, MachineState};
use crate::budget::ExhaustedBudget;
use crate::io::{MachineAction, Misuse};
use crate::phase::RunPhase;
use crate::phase::batch::CallBatch;
use crate::phase::turn::PlannedModelCall;

impl Machine {
    /// Returns how many times the caller gave more before, if the run waits for the caller's answer.
    #[must_use]
    pub fn wants_budget(&self) -> Option<u32> {
        let is_short = match &self.phase {
            RunPhase::Short(_) => true,
            RunPhase::Working(batch) => batch.is_short(),
            _ => false,
        };
        is_short.then(|| self.run.meter.grants())
    }
}

impl MachineState {
    /// Waits for more budget before a model call, or ends the run if no more is possible.
    pub(super) fn wait_or_exhaust(
        &mut self,
        cause: u64,
        ask: PlannedModelCall,
        exhausted: ExhaustedBudget,
    ) -> RunPhase {
        if !self.meter.can_be_given(&self.usage(), self.events()) {
            return self.exhaust(cause, &exhausted);
        }
        self.wait_for_budget(cause);
        RunPhase::Short(ask)
    }

    /// Waits for more budget before a batch is processed, if that can bring more executions or cover the usage of its
    /// answer. Returns whether it waits.
    pub(super) fn short_of_executions(&mut self, cause: u64, batch: &mut CallBatch) -> bool {
        let wanted = u32::try_from(batch.len()).unwrap_or(u32::MAX);
        let (usage, events) = (self.usage(), self.events());
        let crossed = self.meter.budget().find_crossed(&usage, events).is_some();
        let lacks = crossed || self.executions_left() < wanted;
        let has_more = self.meter.own_executions_left(events) > self.executions_left();
        if !lacks || !(crossed || has_more) || !self.meter.can_be_given(&usage, events) {
            return false;
        }
        self.wait_for_budget(cause);
        batch.set_short(true);
        true
    }

    pub(super) fn wait_for_budget(&mut self, cause: u64) {
        let waiting = RunWaiting::new(WaitFor::Budget, Vec::new());
        self.append(Actor::Machine, Some(cause), waiting);
        self.clock.begin_waiting();
        self.perform(MachineAction::AskBudget { given: self.meter.grants() });
    }

    /// Continues with the answer of the caller.
    pub(super) fn continue_with_grant(
        &mut self,
        phase: &mut RunPhase,
        granted: BudgetGranted,
    ) -> Option<RunPhase> {
        self.clock.end_waiting();
        self.meter.take_grant(granted.allowance.as_deref());
        let seq = self.append(Actor::Runtime, None, granted);
        match phase {
            // Another budget may be used up by now than the one that was asked for.
            RunPhase::Short(ask) => Some(self.ask(seq, *ask)),
            RunPhase::Working(batch) => {
                batch.set_short(false);
                if let Some(exhausted) =
                    self.meter.budget().find_crossed(&self.usage(), self.events())
                {
                    return match self.short_of_executions(seq, batch) {
                        true => None,
                        false => Some(self.exhaust_in(phase, seq, &exhausted)),
                    };
                }
                // Executions beyond the budget do not begin.
                let calls = self.conversation.last_calls().to_vec();
                self.admit(calls.into());
                None
            }
            _ => None,
        }
    }
}

impl RunPhase {
    /// Checks whether the run waits for more of the caller's budget.
    pub(crate) fn check_granted(&self) -> Result<(), Misuse> {
        match self {
            Self::Short(_) => Ok(()),
            Self::Working(batch) if batch.is_short() => Ok(()),
            _ => Err(Misuse::Unexpected { event: "budget.granted", state: self.name() }),
        }
    }
}
