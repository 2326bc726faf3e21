//! Delays between attempts.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

/// The limits of retries and of the delays between them.
///
/// The defaults are those of the official provider SDKs where they agree (3 attempts, 0.5 s base,
/// factor 2, 8 s cap), with full jitter and a total deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RetryConfig {
    /// The attempts at an endpoint, including the first; at least 1. A request refused before it is
    /// sent, because a circuit is open, is not counted.
    pub attempts: u32,
    /// The upper bound of the first delay, in milliseconds; it doubles with each attempt.
    pub base_ms: u64,
    /// The largest upper bound of a delay, in milliseconds.
    pub cap_ms: u64,
    /// The longest requested delay that is waited for, in milliseconds. Above it the error is
    /// returned at once.
    pub max_retry_after_ms: u64,
    /// The time for attempts and delays together, in milliseconds, including waits for an
    /// endpoint's own limit.
    ///
    /// No delay exceeds it; a running attempt is not cut off, as that is left to the attempt
    /// timeout. It applies to one provider: a fallback has its own.
    pub deadline_ms: u64,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            attempts: 3,
            base_ms: 500,
            cap_ms: 8_000,
            max_retry_after_ms: 60_000,
            deadline_ms: 120_000,
        }
    }
}

impl RetryConfig {
    /// Returns the defaults: 3 attempts, delays of up to 500 milliseconds that double up to 8
    /// seconds, requested delays of up to a minute, two minutes in all.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use backstop_retry::RetryConfig;
    ///
    /// let config = RetryConfig::new().attempts(5).base(Duration::from_millis(100));
    /// assert_eq!((config.attempts, config.base_ms), (5, 100));
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of attempts, including the first.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Sets the upper bound of the first delay; it doubles with each attempt.
    #[must_use]
    pub fn base(mut self, wait: Duration) -> Self {
        self.base_ms = milliseconds(wait);
        self
    }

    /// Sets the largest upper bound of a delay.
    #[must_use]
    pub fn cap(mut self, wait: Duration) -> Self {
        self.cap_ms = milliseconds(wait);
        self
    }

    /// Sets the longest requested delay that is waited for.
    #[must_use]
    pub fn max_retry_after(mut self, wait: Duration) -> Self {
        self.max_retry_after_ms = milliseconds(wait);
        self
    }

    /// Sets the time for attempts and delays together.
    #[must_use]
    pub fn deadline(mut self, time: Duration) -> Self {
        self.deadline_ms = milliseconds(time);
        self
    }

    /// Returns whether an endpoint has no attempts left after these numbers of requests sent, and
    /// of requests refused before they were sent. A refusal counts as an attempt only if a single
    /// one is allowed.
    #[must_use]
    pub const fn is_spent(&self, sent: u32, refused: u32) -> bool {
        let used = if self.attempts > 1 { sent } else { sent.saturating_add(refused) };
        used >= self.attempts
    }

    /// Makes a configuration that never retries.
    #[must_use]
    pub fn once() -> Self {
        Self { attempts: 1, ..Self::default() }
    }

    /// Returns the delay after the failed attempt `attempt` (1, 2, …), if none was requested: full
    /// jitter between zero and `base · 2^(attempt-1)`, capped.
    ///
    /// Full jitter spreads clients best for the same total work; see "Exponential Backoff And
    /// Jitter", AWS Architecture Blog, 2015.
    pub(crate) fn backoff(&self, attempt: u32, jitter: &Jitter) -> Duration {
        let factor = 1_u64.checked_shl(attempt.saturating_sub(1)).unwrap_or(u64::MAX);
        let bound = self.base_ms.saturating_mul(factor).min(self.cap_ms);
        Duration::from_millis(jitter.up_to(bound))
    }

    /// Returns the delay for a requested one: that delay, plus up to a tenth but at most one
    /// second, so that clients with the same hint do not return at the same moment.
    pub(crate) fn spread_hint(hint: Duration, jitter: &Jitter) -> Duration {
        let spread = u64::try_from(hint.as_millis() / 10).unwrap_or(u64::MAX).min(1_000);
        hint.saturating_add(Duration::from_millis(jitter.up_to(spread)))
    }
}

/// The source of randomness for delays.
#[derive(Clone, Default)]
pub enum Jitter {
    /// The thread's generator, seeded by the operating system: sessions differ.
    #[default]
    Random,
    /// A generator with a given seed: a rehearsal repeats exactly.
    Seeded(Arc<Mutex<StdRng>>),
}

impl Jitter {
    /// Makes jitter that repeats for the same seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        Self::Seeded(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    /// Draws a number from 0 to `bound`, both included.
    #[must_use]
    pub fn up_to(&self, bound: u64) -> u64 {
        match self {
            Self::Random => rand::rng().random_range(0..=bound),
            Self::Seeded(generator) => {
                generator.lock().unwrap_or_else(PoisonError::into_inner).random_range(0..=bound)
            }
        }
    }
}

impl fmt::Debug for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Random => "Random",
            Self::Seeded(_) => "Seeded",
        })
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: R2
    #[test]
    fn waits_stay_under_a_doubling_capped_bound() {
        let config = RetryConfig::default();
        for (attempt, bound) in [(1, 500), (2, 1_000), (5, 8_000), (64, 8_000), (200, 8_000)] {
            for seed in 0..50 {
                let wait = config.backoff(attempt, &Jitter::from_seed(seed));
                assert!(wait <= Duration::from_millis(bound), "{attempt}: {wait:?}");
            }
        }
    }

    /// Spec: R2. Full jitter reaches the bound, and the bound doubles.
    #[test]
    fn waits_reach_their_bound() {
        let config = RetryConfig::new().base(Duration::from_millis(4));
        let config = config.cap(Duration::from_millis(20));
        for (attempt, bound) in [(1, 4), (2, 8), (3, 16), (4, 20), (9, 20)] {
            let waits = (0..400).map(|seed| config.backoff(attempt, &Jitter::from_seed(seed)));
            assert_eq!(waits.max(), Some(Duration::from_millis(bound)), "{attempt}");
        }
    }

    /// Spec: R3
    #[test]
    fn hints_are_spread_by_a_second_at_most() {
        let spread = |hint: u64| {
            let hint = Duration::from_millis(hint);
            let waits =
                (0..400).map(|seed| RetryConfig::spread_hint(hint, &Jitter::from_seed(seed)));
            waits.max().map(|wait| wait.saturating_sub(hint).as_millis())
        };
        assert_eq!(spread(30), Some(3), "a tenth");
        assert!(spread(60_000).is_some_and(|most| (900..=1_000).contains(&most)));
    }

    /// Spec: R2, R3, R4
    #[test]
    fn defaults_are_those_documented() {
        let config = RetryConfig::new();
        assert_eq!((config.attempts, config.base_ms, config.cap_ms), (3, 500, 8_000));
        assert_eq!((config.max_retry_after_ms, config.deadline_ms), (60_000, 120_000));
        assert_eq!(RetryConfig::once(), RetryConfig::new().attempts(1));
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let config = config.max_retry_after(minutes(2)).deadline(minutes(3));
        assert_eq!((config.max_retry_after_ms, config.deadline_ms), (120_000, 180_000));
    }

    /// Spec: R3
    #[test]
    fn longest_spread_is_a_second() {
        let (hint, jitter) = (Duration::from_secs(3_600), Jitter::from_seed(1));
        let waits = (0..20_000).map(|_| RetryConfig::spread_hint(hint, &jitter));
        assert_eq!(waits.max(), Some(hint + Duration::from_secs(1)));
    }

    #[test]
    fn jitter_of_nothing_is_zero() {
        assert_eq!(Jitter::Random.up_to(0), 0);
        assert_eq!(Jitter::from_seed(1).up_to(0), 0);
    }

    /// Spec: R2
    #[test]
    fn sessions_draw_different_waits() {
        let config = RetryConfig { base_ms: 1 << 40, cap_ms: 1 << 40, ..Default::default() };
        let wait = || config.backoff(1, &Jitter::Random.clone());
        assert_ne!(wait(), wait());
    }

    /// Spec: R3
    #[test]
    fn a_hint_is_a_floor() {
        for seed in 0..100 {
            let wait = RetryConfig::spread_hint(Duration::from_secs(2), &Jitter::from_seed(seed));
            assert!((2_000..=2_200).contains(&wait.as_millis()));
        }
    }
}
