use std::sync::Arc;
use std::time::Duration;

use layer0::Timestamp;

use crate::Clock;

/// A clock for the timestamps of a run's events: the time of day when this process took the run,
/// plus the time since then on a clock that is never set. So the difference of two timestamps is a
/// duration, whatever happens to the time of day.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use backstop_clock::{Clock, RunClock, SystemClock};
///
/// let mut clock = RunClock::new(Arc::new(SystemClock));
/// let recorded = SystemClock.now().after(Duration::from_secs(60));
/// // Another machine stamped the last event, and its time of day was ahead.
/// clock.not_before(recorded);
/// assert!(clock.now() >= recorded);
/// ```
#[derive(Debug, Clone)]
pub struct RunClock {
    clock: Arc<dyn Clock>,
    base: Timestamp,
    origin: Duration,
}

impl RunClock {
    /// Starts at the current time of day.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { base: clock.now(), origin: clock.monotonic(), clock }
    }

    /// Moves the clock to this time if it is later, for events that have to follow others.
    pub fn not_before(&mut self, at: Timestamp) {
        (self.base, self.origin) = (self.now().max(at), self.clock.monotonic());
    }

    /// Returns the timestamp of an event that happens now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.base.after(self.clock.monotonic().saturating_sub(self.origin))
    }

    /// Returns the clock used for measuring.
    #[must_use]
    pub const fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }
}
