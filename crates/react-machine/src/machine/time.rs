//! What the time alone decides.

use layer0::Timestamp;

use super::Machine;
use crate::phase::Phase;

impl Machine {
    /// Tells the time without anything having happened, so that a budget that is used up by it ends
    /// the run. Too early, it changes nothing.
    pub fn tick(&mut self, at: Timestamp) {
        if self.is_clock_paused() {
            return;
        }
        let Self { phase, run } = self;
        let later = run.usage_at(at);
        let is_cut_short = matches!(&phase, Phase::Asking(turn) if turn.is_cut_short());
        let budget = run.meter.budget();
        let attempts = budget.for_attempt(&later).filter(|_| is_cut_short);
        if let Some(exhausted) = attempts.or_else(|| budget.used_up_wall_time(&later)) {
            run.clock.advance(at);
            let cause = run.events();
            let next = match &*phase {
                Phase::Asking(turn) if is_cut_short => run.short_of(cause, turn.ask(), exhausted),
                _ => run.exhaust_in(phase, cause, &exhausted),
            };
            *phase = next;
        }
    }

    /// Returns when [`Machine::tick`] will end the run; `None` without a time budget, and while
    /// time does not count.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        if self.is_clock_paused() {
            return None;
        }
        self.run.deadline()
    }

    /// Does time change nothing: before the start, while people think, and once the run has its
    /// answer and only the memory or the last hooks are waited for?
    fn is_clock_paused(&self) -> bool {
        matches!(self.phase, Phase::New | Phase::Memorizing(_))
            || self.phase.is_ending()
            || self.run.clock.is_waiting()
    }
}
