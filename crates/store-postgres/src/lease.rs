//! For how long this process may write to the runs that it has claimed.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use tokio::sync::watch;

/// How often it is looked whether a lease lasts on that is about to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The lease of an owner, as its process counts it: on a clock that goes on while the machine sleeps, and from
/// before each renewal was sent, so that it never lasts longer here than it does in the database.
#[derive(Debug)]
pub(crate) struct Lease {
    lasts: Duration,
    /// When it ends, in milliseconds of that clock; 0 before it began.
    until: AtomicI64,
    /// Is the connection that holds the lock lost, and the lock not held again?
    is_cut_off: AtomicBool,
    has_ended: watch::Sender<bool>,
}

impl Lease {
    pub(crate) fn new(lasts: Duration) -> Self {
        let (has_ended, _) = watch::channel(false);
        Self { lasts, until: AtomicI64::new(0), is_cut_off: AtomicBool::new(false), has_ended }
    }

    pub(crate) const fn lasts(&self) -> Duration {
        self.lasts
    }

    /// How long is waited between two renewals.
    pub(crate) fn renewal(&self) -> Duration {
        self.lasts / 3
    }

    /// Notes that a renewal that was sent at this time was answered.
    pub(crate) fn renewed(&self, sent_at: i64) {
        let lasts = i64::try_from(self.lasts.as_millis()).unwrap_or(i64::MAX);
        self.until.store(sent_at.saturating_add(lasts), Ordering::SeqCst);
        self.is_cut_off.store(false, Ordering::SeqCst);
    }

    /// Notes that the connection was lost.
    pub(crate) fn cut_off(&self) {
        self.is_cut_off.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_cut_off(&self) -> bool {
        self.is_cut_off.load(Ordering::SeqCst)
    }

    /// Ends it for good.
    pub(crate) fn end(&self) {
        self.has_ended.send_replace(true);
    }

    /// Has it ended? Once it has, it stays so: the process was stopped for too long, or cut off.
    pub(crate) fn has_ended(&self) -> bool {
        if *self.has_ended.borrow() {
            return true;
        }
        let is_over = boot_millis() >= self.until.load(Ordering::SeqCst);
        if is_over {
            self.end();
        }
        is_over
    }

    /// May something be started that acts on the world? Not in the last third, and not while another process may
    /// take the lock.
    pub(crate) fn may_start(&self) -> bool {
        let third = i64::try_from(self.renewal().as_millis()).unwrap_or(i64::MAX);
        !self.has_ended()
            && !self.is_cut_off()
            && boot_millis() < self.until.load(Ordering::SeqCst) - third
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&self) {
        let mut told = self.has_ended.subscribe();
        while !self.has_ended() {
            tokio::select! {
                _ = told.changed() => {}
                () = SystemClock.sleep(self.left().max(LOOK_EVERY)) => {}
            }
        }
    }

    /// How long it lasts from now on.
    pub(crate) fn left(&self) -> Duration {
        let left = self.until.load(Ordering::SeqCst).saturating_sub(boot_millis());
        Duration::from_millis(u64::try_from(left).unwrap_or(0))
    }
}

/// Reads the clock of the machine since it was started, in milliseconds; it counts while the machine sleeps.
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

    /// Spec: J2
    #[test]
    fn a_lease_that_ended_stays_so() {
        let lease = Lease::new(Duration::from_secs(15));
        lease.renewed(boot_millis());
        assert!(lease.may_start() && !lease.has_ended());
        lease.cut_off();
        assert!(!lease.may_start() && !lease.has_ended(), "it may get the lock again");
        lease.renewed(boot_millis() - 11_000);
        assert!(!lease.may_start() && !lease.has_ended(), "nothing is started in the last third");
        lease.renewed(boot_millis() - 15_000);
        assert!(lease.has_ended());
        lease.renewed(boot_millis());
        assert!(lease.has_ended() && !lease.may_start());
    }
}
