//! The limits of an endpoint in a minute, and the time when it accepts more.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backstop_clock::Clock;
use layer0::usage::RateLevel;

/// The pause of an endpoint that requests no duration.
const COOLDOWN: Duration = Duration::from_secs(30);
/// The shortest pause, as an endpoint that refuses cannot mean "at once".
const MIN_REST: Duration = Duration::from_secs(1);
/// The longest pause, and the longest reported time until a limit is full again; longer ones are ignored.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
/// The shortest validity of an endpoint's report.
const MIN_TOLD: Duration = Duration::from_secs(60);
/// The level of a bucket that lets a request through. Sums of fractions may end up a little below one.
const ENOUGH: f64 = 1.0 - 1e-9;

/// The requests and tokens that one endpoint accepts in a minute, as configured and as the endpoint
/// reports in its headers. Clones share the count.
///
/// Each limit is a bucket that fills evenly and holds the amount of a minute. A request takes one
/// of the requests, and is let through while there are tokens; the tokens of its answer are taken
/// afterwards, so that no text has to be counted before.
///
/// A report of the endpoint expires when its limit would be full again, after a minute at least.
/// Unusable reports are ignored: a limit of zero, or one that takes more than a day to fill. If a
/// report would keep requests away for long, one of them is sent as a probe
/// ([`RateLimit::try_probe`]).
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use backstop_clock::SystemClock;
/// use backstop_retry::RateLimit;
///
/// let rate = RateLimit::new(Arc::new(SystemClock)).requests_per_minute(2);
/// assert!(rate.try_take().is_ok() && rate.try_take().is_ok());
/// assert!(rate.try_take().is_err_and(|wait| wait <= Duration::from_secs(30)));
/// ```
#[derive(Clone)]
pub struct RateLimit {
    clock: Arc<dyn Clock>,
    cooldown: Duration,
    state: Arc<Mutex<RateState>>,
}

#[derive(Debug, Default)]
struct RateState {
    /// `None` without limits, to save memory for endpoints that are not limited.
    limits: Option<Box<RateBuckets>>,
    /// No requests are sent until this time, in monotonic time.
    rests_until: Duration,
    in_flight: usize,
}

#[derive(Debug, Default)]
struct RateBuckets {
    requests: Buckets,
    tokens: Buckets,
    /// The time of the last refill of the buckets, in monotonic time.
    filled: Duration,
}

/// The limits of one kind.
#[derive(Debug, Default)]
struct Buckets {
    configured: Option<Bucket>,
    /// The endpoint's last report, and the end of its validity, in monotonic time.
    told: Option<(Bucket, Duration)>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    size: f64,
    per_second: f64,
    /// Below zero if more was used than was available.
    level: f64,
}

/// A request that was let through. It is in flight until this is dropped.
#[derive(Debug)]
#[must_use = "the request is in flight as long as this is held"]
pub struct RatePermit(RateLimit);

impl RateLimit {
    /// Makes a limit without configured or reported limits.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, cooldown: COOLDOWN, state: Arc::default() }
    }

    /// Sets the number of requests let through in a minute, at least 1.
    #[must_use]
    pub fn requests_per_minute(self, requests: u32) -> Self {
        let bucket = Bucket::a_minute(f64::from(requests.max(1)));
        self.limits(|limits| limits.requests.configured = Some(bucket));
        self
    }

    /// Sets the number of tokens in a minute, at least 1. Requests are let through while their
    /// answers used fewer.
    #[must_use]
    pub fn tokens_per_minute(self, tokens: u64) -> Self {
        let bucket = Bucket::a_minute(float(tokens.max(1)));
        self.limits(|limits| limits.tokens.configured = Some(bucket));
        self
    }

    /// Sets the pause after a failure without a requested delay; 30 seconds by default.
    #[must_use]
    pub const fn cooldown(mut self, cooldown: Duration) -> Self {
        self.cooldown = cooldown;
        self
    }

    /// Lets a request through, or returns the delay.
    ///
    /// # Errors
    ///
    /// The time until the next request can be let through.
    pub fn try_take(&self) -> Result<RatePermit, Duration> {
        let mut state = self.state();
        match state.wait(self.clock.monotonic()) {
            Duration::ZERO => {
                if let Some(limits) = &mut state.limits {
                    limits.requests.take(1.0);
                }
                state.in_flight += 1;
                Ok(RatePermit(self.clone()))
            }
            wait => Err(wait),
        }
    }

    /// Lets a request through despite the endpoint's reported limits, and despite a pause: its
    /// response shows the current limits. It is the only one in flight, and within the configured
    /// limits.
    ///
    /// # Errors
    ///
    /// The time after which a new try makes sense.
    pub fn try_probe(&self) -> Result<RatePermit, Duration> {
        let now = self.clock.monotonic();
        let mut state = self.state();
        if state.in_flight > 0 {
            return Err(MIN_REST);
        }
        match state.limits.as_mut().map_or(Duration::ZERO, |limits| limits.configured_wait(now)) {
            Duration::ZERO => {
                if let Some(limits) = &mut state.limits {
                    limits.requests.take(1.0);
                }
                state.in_flight += 1;
                Ok(RatePermit(self.clone()))
            }
            wait => Err(wait),
        }
    }

    /// Returns the time until a request can be let through.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.state().wait(self.clock.monotonic())
    }

    /// Returns the number of requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.state().in_flight
    }

    /// Records the tokens that an answer used.
    pub fn record_usage(&self, tokens: u64) {
        let now = self.clock.monotonic();
        if let Some(limits) = &mut self.state().limits {
            limits.fill(now);
            limits.tokens.take(float(tokens));
        }
    }

    /// Records the remaining requests and tokens, as the endpoint reports them. An absent or
    /// unusable value keeps the previous one.
    pub fn record_remaining(&self, requests: Option<RateLevel>, tokens: Option<RateLevel>) {
        let (requests, tokens) =
            (requests.and_then(Bucket::from_report), tokens.and_then(Bucket::from_report));
        if requests.is_none() && tokens.is_none() {
            return;
        }
        // The endpoint may not count other requests in flight yet.
        let others = u64::try_from(self.in_flight().saturating_sub(1)).unwrap_or(u64::MAX);
        self.limits(|limits| {
            let now = limits.filled;
            let expires_at =
                |(bucket, counts_for): (Bucket, Duration)| (bucket, now.saturating_add(counts_for));
            if let Some((bucket, until)) = requests.map(expires_at) {
                let level = bucket.level - float(others);
                limits.requests.told = Some((Bucket { level, ..bucket }, until));
            }
            if let Some(told) = tokens.map(expires_at) {
                limits.tokens.told = Some(told);
            }
        });
    }

    /// Pauses the endpoint for the requested delay, from a second to a day, or for its cooldown.
    pub fn rest(&self, hint: Option<Duration>) {
        let rest = hint.map_or(self.cooldown, |hint| hint.max(MIN_REST)).min(MAX_WAIT);
        let until = self.clock.monotonic().saturating_add(rest);
        let mut state = self.state();
        state.rests_until = state.rests_until.max(until);
    }

    /// Returns the time until the pause of [`RateLimit::rest`] ends; zero without one.
    #[must_use]
    pub fn pause_left(&self) -> Duration {
        let now = self.clock.monotonic();
        self.state().rests_until.saturating_sub(now)
    }

    /// Changes the limits, after refilling them.
    fn limits(&self, change: impl FnOnce(&mut RateBuckets)) {
        let now = self.clock.monotonic();
        let mut state = self.state();
        let limits = state.limits.get_or_insert_default();
        limits.fill(now);
        change(limits);
    }

    fn state(&self) -> MutexGuard<'_, RateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Drop for RatePermit {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.in_flight = state.in_flight.saturating_sub(1);
    }
}

impl RateState {
    fn wait(&mut self, now: Duration) -> Duration {
        let rest = self.rests_until.saturating_sub(now);
        rest.max(self.limits.as_mut().map_or(Duration::ZERO, |limits| limits.wait(now)))
    }
}

impl RateBuckets {
    fn fill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.filled).as_secs_f64();
        self.filled = now;
        for buckets in [&mut self.requests, &mut self.tokens] {
            buckets.told.take_if(|(_, until)| *until <= now);
            buckets.fill(passed);
        }
    }

    fn configured_wait(&mut self, now: Duration) -> Duration {
        self.fill(now);
        let wait = |buckets: &Buckets| buckets.configured.map(|bucket| bucket.wait());
        wait(&self.requests).max(wait(&self.tokens)).unwrap_or_default()
    }

    fn wait(&mut self, now: Duration) -> Duration {
        self.fill(now);
        self.requests.wait().max(self.tokens.wait())
    }
}

impl Buckets {
    fn each(&mut self) -> impl Iterator<Item = &mut Bucket> {
        self.configured.iter_mut().chain(self.told.iter_mut().map(|(bucket, _)| bucket))
    }

    fn fill(&mut self, seconds: f64) {
        self.each().for_each(|bucket| {
            bucket.level = seconds.mul_add(bucket.per_second, bucket.level).min(bucket.size);
        });
    }

    fn take(&mut self, amount: f64) {
        self.each().for_each(|bucket| bucket.level -= amount);
    }

    fn wait(&mut self) -> Duration {
        self.each().map(|bucket| bucket.wait()).max().unwrap_or_default()
    }
}

impl Bucket {
    /// Makes a full bucket with the amount of a minute.
    fn a_minute(size: f64) -> Self {
        Self { size, per_second: size / 60.0, level: size }
    }

    /// Makes a bucket from an endpoint's report, and returns the time for which it is valid. It
    /// fills evenly until the time when it is full.
    fn from_report(level: RateLevel) -> Option<(Self, Duration)> {
        let RateLevel { limit, remaining, full_in, .. } = level;
        let (size, level) = (float(limit?), float(remaining));
        let missing = size - level;
        let full_in = full_in.filter(|time| *time <= MAX_WAIT).unwrap_or_default();
        let seconds = full_in.as_secs_f64();
        let told = missing / seconds;
        let is_usable = told.is_finite() && told > 0.0;
        let per_second = if is_usable { told } else { size / 60.0 };
        let bucket = Self { size, per_second, level: level.min(size) };
        (size >= 1.0).then_some((bucket, full_in.max(MIN_TOLD)))
    }

    fn wait(&self) -> Duration {
        if self.level >= ENOUGH {
            return Duration::ZERO;
        }
        let seconds = (1.0 - self.level) / self.per_second;
        let wait = Duration::try_from_secs_f64(seconds).unwrap_or(MAX_WAIT).min(MAX_WAIT);
        // Delays have milliseconds: one that is a little too short would be followed by another.
        Duration::from_millis(
            u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX),
        )
    }
}

/// Converts a count for the buckets; beyond 2^53 it is rounded, and no limit is that large.
#[expect(clippy::cast_precision_loss, reason = "no limit is beyond 2^53")]
const fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
