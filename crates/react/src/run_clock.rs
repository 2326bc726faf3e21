//! The time of one run.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::Clock;
use layer0::Timestamp;

/// Stamps the events of a run: with the time of day when this process took the run, plus what has
/// passed since on a clock that is never set. So a difference of two stamps is a duration, whatever
/// becomes of the time of day.
#[derive(Debug, Clone)]
pub(crate) struct RunClock {
    clock: Arc<dyn Clock>,
    base: Timestamp,
    origin: Duration,
}

impl RunClock {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { base: clock.now(), origin: clock.monotonic(), clock }
    }

    /// Begins no earlier than this, where events have to stand behind others.
    pub(crate) fn not_before(&mut self, at: Timestamp) {
        (self.base, self.origin) = (self.now().max(at), self.clock.monotonic());
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.base.after(self.clock.monotonic().saturating_sub(self.origin))
    }

    pub(crate) const fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }
}
