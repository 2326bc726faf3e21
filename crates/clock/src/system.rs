use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use layer0::Timestamp;

use crate::{BoxFuture, Clock};

/// The machine's own clock, sleeping on tokio's timer.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::exhaustive_structs, reason = "it is a name, and holds nothing")]
pub struct SystemClock;

/// Milliseconds by which tests have set the time of day.
#[cfg(feature = "set-clock")]
static SET_BY_MS: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(0);

#[cfg(feature = "set-clock")]
impl SystemClock {
    /// Sets the time of day of this process ahead, or back if `by_ms` is negative, as a person or a time server does.
    /// Sleeps and [`Clock::monotonic`] are not affected.
    ///
    /// Only for tests, each in a process of its own: everything in the process reads this clock.
    pub fn set_time_of_day(by_ms: i64) {
        SET_BY_MS.fetch_add(by_ms, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the time")]
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ms = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
        #[cfg(feature = "set-clock")]
        let ms = ms.saturating_add(SET_BY_MS.load(std::sync::atomic::Ordering::SeqCst));
        Timestamp::from_millis(ms)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the time")]
    fn monotonic(&self) -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one place that sleeps")]
    fn sleep(&self, wait: Duration) -> BoxFuture {
        Box::pin(tokio::time::sleep(wait))
    }

    fn tracks(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_time_never_steps_back() {
        let mut last = SystemClock.monotonic();
        for _ in 0..1_000 {
            let now = SystemClock.monotonic();
            assert!(now >= last);
            last = now;
        }
    }
}
