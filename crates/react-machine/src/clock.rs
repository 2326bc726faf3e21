//! The time of a run, taken from its inputs.

use std::time::Duration;

use layer0::{Code, Timestamp};

/// The time for which the run was running; waits for people and the time without a process do not count.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RunTimer {
    /// Time at which the run would have started without any pause.
    started: Timestamp,
    now: Timestamp,
    /// Time since which the run only waits for people.
    waiting_since: Option<Timestamp>,
    /// Time until which it is parked, while it waits, with the reason.
    parked: Option<(Timestamp, Code)>,
    /// Last time at which the run was certainly running, if people settled calls since.
    left_at: Option<Timestamp>,
}

impl RunTimer {
    /// Starts to count at the current time.
    pub(crate) const fn start(&mut self) {
        self.started = self.now;
    }

    /// Returns the time of the last input.
    pub(crate) const fn now(&self) -> Timestamp {
        self.now
    }

    /// Advances to this time; never moves back.
    pub(crate) fn advance(&mut self, at: Timestamp) {
        self.now = self.now.max(at);
    }

    /// Returns the last time at which the run was certainly running; the next input shows whether it still is.
    pub(crate) fn at_work_until(&mut self) -> Timestamp {
        self.left_at.take().unwrap_or(self.now)
    }

    /// Records that the run may be without a process since then.
    pub(crate) const fn leave(&mut self, since: Timestamp) {
        self.left_at = Some(since);
    }

    /// Records that a process has the run.
    pub(crate) const fn stay(&mut self) {
        self.left_at = None;
    }

    /// Returns the counted milliseconds until then.
    pub(crate) fn elapsed_ms(&self, at: Timestamp) -> u64 {
        self.counted_ms(self.left_at.unwrap_or(self.now.max(at)))
    }

    /// Returns the milliseconds that a process that has the run counts until then.
    pub(crate) fn elapsed_at_work_ms(&self, at: Timestamp) -> u64 {
        self.counted_ms(self.waiting_since.unwrap_or(self.now.max(at)))
    }

    fn counted_ms(&self, until: Timestamp) -> u64 {
        u64::try_from(until.since(self.started).as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the time at which this many milliseconds will have been counted.
    pub(crate) fn after_ms(&self, ms: u64) -> Timestamp {
        self.started.after(Duration::from_millis(ms))
    }

    /// Returns the time from `at` to `until`.
    pub(crate) fn time_until(&self, until: Timestamp, at: Timestamp) -> Duration {
        until.since(at.max(self.now))
    }

    /// Excludes the time since then.
    pub(crate) fn skip_since(&mut self, since: Timestamp) {
        self.started = self.started.after(self.now.since(since));
    }

    pub(crate) const fn begin_waiting(&mut self) {
        self.waiting_since = Some(self.now);
    }

    /// Ends a wait for people, whose time is excluded.
    pub(crate) fn end_waiting(&mut self) {
        self.parked = None;
        if let Some(since) = self.waiting_since.take() {
            self.skip_since(since);
        }
    }

    /// Ends a wait for people whose time was already excluded.
    pub(crate) fn forget_waiting(&mut self) {
        (self.waiting_since, self.parked) = (None, None);
    }

    /// Starts a wait until this time, with a reason.
    pub(crate) fn park(&mut self, until: Timestamp, reason: Code) {
        if self.waiting_since.is_none() {
            self.begin_waiting();
        }
        self.parked = Some((until, reason));
    }

    pub(crate) fn parked_until(&self) -> Option<Timestamp> {
        self.parked.as_ref().map(|(until, _)| *until)
    }

    pub(crate) fn parked_reason(&self) -> Option<&Code> {
        self.parked.as_ref().map(|(_, reason)| reason)
    }

    pub(crate) const fn is_waiting(&self) -> bool {
        self.waiting_since.is_some()
    }
}
