//! The time for which this process may write to the runs that it has claimed.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use tokio::sync::watch;

/// Shortest wait before a lease that is about to end is checked again.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time after the last confirmation of the lock during which an action may start.
const LOCK_TRUSTED: Duration = Duration::from_secs(1);
/// Time after the last confirmation of the lock at which actions are stopped if its connection is lost: another process
/// takes the runs over after [`TAKEN_AFTER`](crate::liveness::TAKEN_AFTER) at the earliest.
const STOPPED_AFTER: Duration = Duration::from_millis(1_200);

/// The lease of an owner as its process counts it: on a clock that continues while the machine sleeps, and from before
/// each renewal was sent, so that it never lasts longer here than in the database.
#[derive(Debug)]
pub(crate) struct OwnerLease {
    lasts: Duration,
    has_lock: bool,
    /// End of the lease, in milliseconds of the same clock; 0 before the first renewal.
    until: AtomicI64,
    /// Time at which the last check was sent whose answer showed that the lock was held.
    confirmed: AtomicI64,
    /// Whether the lock's connection is lost and the lock not yet held again.
    is_cut_off: AtomicBool,
    has_ended: AtomicBool,
    /// Notifies when the lease ends, its connection is lost, or claims under it are lost.
    changed: watch::Sender<()>,
}

impl OwnerLease {
    /// Creates a lease of this length after each renewal; with a lock, unless only leases count.
    pub(crate) fn new(lasts: Duration, has_lock: bool) -> Self {
        Self {
            lasts,
            has_lock,
            until: AtomicI64::new(0),
            confirmed: AtomicI64::new(0),
            is_cut_off: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            changed: watch::Sender::new(()),
        }
    }

    pub(crate) const fn lasts(&self) -> Duration {
        self.lasts
    }

    /// Returns the interval between two renewals.
    pub(crate) fn renewal(&self) -> Duration {
        self.lasts / 3
    }

    /// Records the answer to a renewal that was sent at this time and showed which claims still hold.
    pub(crate) fn record_renewal(&self, sent_at: i64) {
        self.until.store(sent_at.saturating_add(millis(self.lasts)), Ordering::SeqCst);
        self.confirmed.store(sent_at, Ordering::SeqCst);
        self.is_cut_off.store(false, Ordering::SeqCst);
    }

    /// Records the answer to a check of the lock that was sent at this time. Returns `false` for an answer that came
    /// too late: it confirms nothing, and the claims must be checked first.
    pub(crate) fn confirm_lock(&self, sent_at: i64) -> bool {
        let is_in_time = self.is_lock_trusted();
        if is_in_time {
            self.confirmed.store(sent_at, Ordering::SeqCst);
        }
        is_in_time
    }

    /// Records that the connection was lost.
    pub(crate) fn cut_off(&self) {
        self.is_cut_off.store(true, Ordering::SeqCst);
        self.ring();
    }

    pub(crate) fn is_cut_off(&self) -> bool {
        self.is_cut_off.load(Ordering::SeqCst)
    }

    /// Wakes the tasks that wait for the end of the lease or of a claim.
    pub(crate) fn ring(&self) {
        self.changed.send_replace(());
    }

    /// Ends the lease for good.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
        self.ring();
    }

    /// Returns whether the lease has ended, because the process was stopped for too long or cut off. It cannot start
    /// again.
    pub(crate) fn has_ended(&self) -> bool {
        if self.has_ended.load(Ordering::SeqCst) {
            return true;
        }
        let is_over = boot_millis() >= self.until.load(Ordering::SeqCst);
        if is_over {
            self.end();
        }
        is_over
    }

    /// Returns whether an action with an effect may start: not in the last third of the lease, and not while another
    /// process may take the lock.
    pub(crate) fn may_start(&self) -> bool {
        !self.has_ended()
            && !self.is_cut_off()
            && self.is_lock_trusted()
            && boot_millis() < self.until.load(Ordering::SeqCst) - millis(self.renewal())
    }

    /// Returns whether the lock was confirmed recently, or there is none.
    fn is_lock_trusted(&self) -> bool {
        !self.has_lock || boot_millis() < self.confirmed_until(LOCK_TRUSTED)
    }

    fn confirmed_until(&self, after: Duration) -> i64 {
        self.confirmed.load(Ordering::SeqCst).saturating_add(millis(after))
    }

    /// Waits until the lease has ended, or `is_lost` returns `true` after a [notification](Lease::ring).
    pub(crate) async fn ended_or(&self, is_lost: impl Fn() -> bool) {
        let mut changed = self.changed.subscribe();
        while !self.has_ended() && !is_lost() {
            tokio::select! {
                _ = changed.changed() => {}
                () = SystemClock.sleep(self.time_left().max(LOOK_EVERY)) => {}
            }
        }
    }

    /// Waits until actions must stop, because another process may soon take over the runs.
    pub(crate) async fn must_stop(&self) {
        let mut changed = self.changed.subscribe();
        loop {
            let left = match self.has_lock && self.is_cut_off() {
                true => self.confirmed_until(STOPPED_AFTER).saturating_sub(boot_millis()),
                false => i64::MAX,
            };
            if left <= 0 || self.has_ended() {
                return;
            }
            let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
            tokio::select! {
                _ = changed.changed() => {}
                () = SystemClock.sleep(left.min(self.time_left().max(LOOK_EVERY))) => {}
            }
        }
    }

    /// Returns the remaining time of the lease.
    pub(crate) fn time_left(&self) -> Duration {
        let left = self.until.load(Ordering::SeqCst).saturating_sub(boot_millis());
        Duration::from_millis(u64::try_from(left).unwrap_or(0))
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Returns the time since the machine's boot, in milliseconds, including the time that it sleeps.
pub(crate) fn boot_millis() -> i64 {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec.saturating_mul(1_000).saturating_add(time.tv_nsec / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn lease() -> OwnerLease {
        let lease = OwnerLease::new(Duration::from_secs(15), true);
        lease.record_renewal(boot_millis());
        lease
    }

    /// Spec: J2
    #[test]
    fn a_lease_that_ended_stays_so() {
        let lease = lease();
        assert!(lease.may_start() && !lease.has_ended());
        lease.cut_off();
        assert!(!lease.may_start() && !lease.has_ended(), "it may get the lock again");
        let lockless = OwnerLease::new(Duration::from_secs(15), false);
        lockless.record_renewal(boot_millis() - 9_000);
        assert!(lockless.may_start(), "leases alone count");
        lockless.record_renewal(boot_millis() - 11_000);
        assert!(!lockless.may_start() && !lockless.has_ended(), "nothing starts in the last third");
        lease.record_renewal(boot_millis() - 15_000);
        assert!(lease.has_ended());
        lease.record_renewal(boot_millis());
        assert!(lease.has_ended() && !lease.may_start());
    }

    /// Spec: J2. A process that was stopped has to look at its claims before it starts anything.
    #[test]
    fn late_confirmation_starts_nothing() {
        let lease = lease();
        assert!(lease.confirm_lock(boot_millis()));
        lease.record_renewal(boot_millis() - 1_100);
        assert!(!lease.may_start() && !lease.has_ended());
        assert!(!lease.confirm_lock(boot_millis()), "the claims are looked at first");
        assert!(!lease.may_start());
        lease.record_renewal(boot_millis());
        assert!(lease.may_start());
    }

    /// Spec: J2. A server that is slow takes no lock away; a lost connection may.
    #[tokio::test]
    async fn acting_work_stops_before_a_takeover() {
        let lease = lease();
        lease.record_renewal(boot_millis() - 5_000);
        assert!(lease.must_stop().now_or_never().is_none(), "the connection stands");
        lease.cut_off();
        assert!(lease.must_stop().now_or_never().is_some());
        lease.record_renewal(boot_millis());
        lease.cut_off();
        assert!(lease.must_stop().now_or_never().is_none(), "it may get the lock again");
        assert!(STOPPED_AFTER < crate::liveness::TAKEN_AFTER);
        let lockless = OwnerLease::new(Duration::from_secs(15), false);
        lockless.record_renewal(boot_millis() - 5_000);
        lockless.cut_off();
        assert!(lockless.must_stop().now_or_never().is_none());
    }
}
