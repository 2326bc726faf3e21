//! Parked runs: an endpoint of the run or of a child run asks for a wait until a time.

use layer0::event::{Actor, EventKind, RunParked, RunResumed, RunWaiting, WaitFor};
use layer0::{Code, Timestamp};

use super::step::Transition;
use super::{Machine, MachineState};
use crate::io::{EffectId, Misuse};
use crate::phase::RunPhase;
use crate::phase::turn::PlannedModelCall;

impl Machine {
    /// Returns the time at which a parked run continues.
    #[must_use]
    pub fn parked_until(&self) -> Option<Timestamp> {
        self.run.clock.parked_until()
    }

    /// Returns the reason that the run is parked, if it is.
    #[must_use]
    pub fn parked_reason(&self) -> Option<&Code> {
        self.run.clock.parked_reason()
    }

    /// Returns whether a parked run may call its model again.
    #[must_use]
    pub fn is_due(&self, at: Timestamp) -> bool {
        matches!(self.phase, RunPhase::Parked(_))
            && self.parked_until().is_some_and(|until| until <= at)
    }
}

impl MachineState {
    /// Checks whether the run can be parked: during a model call, or while it waits for parked child runs.
    pub(super) fn check_parked<'p>(
        &self,
        phase: &'p mut RunPhase,
        effect: Option<EffectId>,
        parked: RunParked,
    ) -> Result<Transition<'p>, Misuse> {
        let event = "run.parked";
        match phase {
            RunPhase::Asking(turn) => {
                turn.check_effect(effect)?;
                Ok(Transition::Parked(*turn, parked))
            }
            RunPhase::Working(_) if self.clock.is_waiting() => Ok(Transition::ParkedBelow(parked)),
            _ => Err(Misuse::Unexpected { event, state: phase.name() }),
        }
    }

    pub(super) fn park(
        &mut self,
        requested: u64,
        ask: PlannedModelCall,
        parked: RunParked,
    ) -> RunPhase {
        let (until, reason) = (parked.until, parked.reason.clone());
        let seq = self.append(Actor::Runtime, Some(requested), parked);
        self.append(Actor::Machine, Some(seq), RunWaiting::new(WaitFor::Parked, Vec::new()));
        self.clock.park(until, reason);
        RunPhase::Parked(ask)
    }

    pub(super) fn parked_below(&mut self, parked: RunParked) -> Option<RunPhase> {
        self.clock.park(parked.until, parked.reason.clone());
        let cause = self.events();
        self.append(Actor::Runtime, Some(cause), parked);
        None
    }

    /// Resumes a run that waited, possibly in another process. A parked run calls its model again once it is due, or if
    /// its record has lost events.
    pub(super) fn resume(
        &mut self,
        phase: &mut RunPhase,
        before: Timestamp,
        resumed: RunResumed,
    ) -> Option<RunPhase> {
        if !self.clock.is_waiting() {
            self.clock.skip_since(before);
        }
        self.outbox.begin_epoch();
        let is_due = self.clock.parked_until().is_some_and(|until| until <= self.clock.now());
        let has_lost = resumed.lost_tail.is_some();
        let seq = self.append(Actor::Runtime, None, EventKind::from(resumed));
        match phase {
            RunPhase::Working(batch) if has_lost => {
                batch.doubt();
                None
            }
            RunPhase::Parked(ask) if is_due || has_lost => {
                self.clock.end_waiting();
                Some(self.ask(seq, *ask))
            }
            _ => None,
        }
    }
}
