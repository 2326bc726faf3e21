//! A run that waits for a time: an endpoint, of its own or of a run below, wants to be left alone so long.

use layer0::event::{Actor, EventKind, RunParked, RunResumed, RunWaiting, WaitFor};
use layer0::{Code, Timestamp};

use super::step::Step;
use super::{Machine, Run};
use crate::io::{EffectId, Misuse};
use crate::phase::Phase;
use crate::phase::turn::Ask;

impl Machine {
    /// Returns when the run goes on, where it waits for a time.
    #[must_use]
    pub fn parked_until(&self) -> Option<Timestamp> {
        self.run.clock.parked_until()
    }

    /// Returns why the run waits for a time, where it does.
    #[must_use]
    pub fn parked_reason(&self) -> Option<&Code> {
        self.run.clock.parked_reason()
    }

    /// Is it time for a run to ask its model that waited for this?
    #[must_use]
    pub fn is_due(&self, at: Timestamp) -> bool {
        matches!(self.phase, Phase::Parked(_))
            && self.parked_until().is_some_and(|until| until <= at)
    }
}

impl Run {
    /// Can the run be parked: while its model is asked, or while it waits for runs below that are?
    pub(super) fn check_parked<'p>(
        &self,
        phase: &'p mut Phase,
        effect: Option<EffectId>,
        parked: RunParked,
    ) -> Result<Step<'p>, Misuse> {
        let event = "run.parked";
        match phase {
            Phase::Asking(turn) => {
                turn.check_effect(effect)?;
                Ok(Step::Parked(*turn, parked))
            }
            Phase::Working(_) if self.clock.is_waiting() => Ok(Step::ParkedBelow(parked)),
            _ => Err(Misuse::Unexpected { event, state: phase.name() }),
        }
    }

    pub(super) fn parked(&mut self, requested: u64, ask: Ask, parked: RunParked) -> Phase {
        let (until, reason) = (parked.until, parked.reason.clone());
        let seq = self.append(Actor::Runtime, Some(requested), parked);
        self.append(Actor::Machine, Some(seq), RunWaiting::new(WaitFor::Parked, Vec::new()));
        self.clock.park(until, reason);
        Phase::Parked(ask)
    }

    pub(super) fn parked_below(&mut self, parked: RunParked) -> Option<Phase> {
        self.clock.park(parked.until, parked.reason.clone());
        let cause = self.events();
        self.append(Actor::Runtime, Some(cause), parked);
        None
    }

    /// Goes on with a run that waited, in another process perhaps. One that was parked asks its model again
    /// once it is time, or if its record has lost events.
    pub(super) fn resumed(
        &mut self,
        phase: &mut Phase,
        before: Timestamp,
        resumed: RunResumed,
    ) -> Option<Phase> {
        if !self.clock.is_waiting() {
            self.clock.skip_since(before);
        }
        self.outbox.begin_epoch();
        let is_due = self.clock.parked_until().is_some_and(|until| until <= self.clock.now());
        let has_lost = resumed.lost_tail.is_some();
        let seq = self.append(Actor::Runtime, None, EventKind::from(resumed));
        match phase {
            Phase::Working(batch) if has_lost => {
                batch.doubt();
                None
            }
            Phase::Parked(ask) if is_due || has_lost => {
                self.clock.end_waiting();
                Some(self.ask(seq, *ask))
            }
            _ => None,
        }
    }
}
