//! The time of a run, as its inputs tell it.

use std::time::Duration;

use layer0::{Code, Timestamp};

/// Counts the time in which the run was at work: neither while it waited for people nor while no
/// process ran it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Clock {
    /// When the run would have started if it had never stood still.
    started: Timestamp,
    now: Timestamp,
    /// Since when the run does nothing but wait for people.
    waiting_since: Option<Timestamp>,
    /// Until when it is parked, while it waits.
    parked: Option<(Timestamp, Code)>,
    /// Until when the run was at work for certain, where people said something of it since.
    left_at: Option<Timestamp>,
}

impl Clock {
    /// Begins to count now.
    pub(crate) const fn start(&mut self) {
        self.started = self.now;
    }

    /// Returns when the last input happened.
    pub(crate) const fn now(&self) -> Timestamp {
        self.now
    }

    /// Goes on to this time; never back.
    pub(crate) fn advance(&mut self, at: Timestamp) {
        self.now = self.now.max(at);
    }

    /// Returns until when the run was at work for certain; what happens next says whether it still is.
    pub(crate) fn at_work_until(&mut self) -> Timestamp {
        self.left_at.take().unwrap_or(self.now)
    }

    /// Notes that the run may be without a process since then.
    pub(crate) const fn leave(&mut self, since: Timestamp) {
        self.left_at = Some(since);
    }

    /// Notes that a process has the run.
    pub(crate) const fn stay(&mut self) {
        self.left_at = None;
    }

    /// Returns how many milliseconds were counted until then.
    pub(crate) fn elapsed_ms(&self, at: Timestamp) -> u64 {
        self.counted_ms(self.left_at.unwrap_or(self.now.max(at)))
    }

    /// Returns how many milliseconds a process that has the run counts until then.
    pub(crate) fn elapsed_at_work_ms(&self, at: Timestamp) -> u64 {
        self.counted_ms(self.waiting_since.unwrap_or(self.now.max(at)))
    }

    fn counted_ms(&self, until: Timestamp) -> u64 {
        u64::try_from(until.since(self.started).as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns when so many milliseconds will have been counted.
    pub(crate) fn after_ms(&self, ms: u64) -> Timestamp {
        self.started.after(Duration::from_millis(ms))
    }

    /// Returns how long it is from then until `until`.
    pub(crate) fn time_until(&self, until: Timestamp, at: Timestamp) -> Duration {
        until.since(at.max(self.now))
    }

    /// Leaves out the time since then.
    pub(crate) fn skip_since(&mut self, since: Timestamp) {
        self.started = self.started.after(self.now.since(since));
    }

    pub(crate) const fn begin_waiting(&mut self) {
        self.waiting_since = Some(self.now);
    }

    /// Ends a wait for people, whose time is left out.
    pub(crate) fn end_waiting(&mut self) {
        self.parked = None;
        if let Some(since) = self.waiting_since.take() {
            self.skip_since(since);
        }
    }

    /// Ends a wait for people whose time was left out already.
    pub(crate) fn forget_waiting(&mut self) {
        (self.waiting_since, self.parked) = (None, None);
    }

    /// It waits for this time, for a reason.
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
