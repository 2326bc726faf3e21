//! Decisions that depend only on the time.

use layer0::Timestamp;

use super::Machine;
use crate::phase::RunPhase;

impl Machine {
    /// Advances the time of a run that a process has, without any fact, so that an exhausted time budget ends the run.
    /// Before that time it changes nothing. Of a wait, only the time before it counts.
    pub fn tick(&mut self, at: Timestamp) {
        if matches!(self.phase, RunPhase::New) || self.has_answer() {
            return;
        }
        let Self { phase, run } = self;
        let later = run.usage_at_work(at);
        let is_cut_short = matches!(&phase, RunPhase::Asking(turn) if turn.is_cut_short());
        let budget = run.meter.budget();
        let attempts = budget.for_attempt(&later).filter(|_| is_cut_short);
        if let Some(exhausted) = attempts.or_else(|| budget.used_up_wall_time(&later)) {
            // The time is known only from here.
            run.clock.stay();
            run.clock.advance(at);
            let cause = run.events();
            let next = match &*phase {
                RunPhase::Asking(turn) => run.wait_or_exhaust(cause, turn.ask(), exhausted),
                _ => run.exhaust_in(phase, cause, &exhausted),
            };
            *phase = next;
        }
    }

    /// Returns the time at which [`Machine::tick`] will end the run; `None` without a time budget, and while time does
    /// not count.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        if self.is_clock_paused() {
            return None;
        }
        self.run.deadline()
    }

    /// Returns whether the run has its final result, and only the memory or the last hooks are pending.
    #[must_use]
    pub const fn has_answer(&self) -> bool {
        matches!(self.phase, RunPhase::Memorizing(_)) || self.phase.is_ending()
    }

    /// Returns whether time does not count: before the start, while people decide, and once the run has its result.
    const fn is_clock_paused(&self) -> bool {
        matches!(self.phase, RunPhase::New) || self.has_answer() || self.run.clock.is_waiting()
    }
}
