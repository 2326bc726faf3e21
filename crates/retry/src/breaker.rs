//! A circuit breaker: an endpoint that fails repeatedly is not called for a while.

pub(crate) mod service;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backstop_clock::Clock;
use layer0::failure::{CircuitOpen, ErrorText, Failure};

/// The shortest retry delay while a probe is running.
const MIN_PROBE_WAIT: Duration = Duration::from_secs(1);

/// The configuration of a [`Breaker`]: by default it opens after 5 failures, and stays open for 30 s.
///
/// ```
/// use std::time::Duration;
/// use backstop_retry::BreakerConfig;
///
/// let config = BreakerConfig::new().failures(3);
/// assert_eq!(config.open_for, Duration::from_secs(30));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerConfig {
    /// The consecutive failures that open it; at least 1.
    pub failures: u32,
    /// The time it stays open before it lets a probe through.
    pub open_for: Duration,
}

impl BreakerConfig {
    /// Returns the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of consecutive failures that open it; at least 1.
    #[must_use]
    pub const fn failures(mut self, failures: u32) -> Self {
        self.failures = failures;
        self
    }

    /// Sets the time it stays open before it lets a probe through.
    #[must_use]
    pub const fn open_for(mut self, time: Duration) -> Self {
        self.open_for = time;
        self
    }
}

impl Default for BreakerConfig {
    /// 5 failures, 30 s.
    fn default() -> Self {
        Self { failures: 5, open_for: Duration::from_secs(30) }
    }
}

/// A circuit breaker for one endpoint, which counts its failures; clones share the count.
///
/// It opens after several consecutive transient failures, and then refuses calls without making
/// them. After a while one call is let through as a probe: it closes the breaker, or opens it
/// again. Until then the retry delay returned to others is the time that the probe has taken so
/// far, between a second and `open_for`. A caller's mistake or a rate limit shows that the endpoint
/// is alive and closes it too; a dropped call shows nothing.
///
/// A call's result counts only while the breaker is in the state that let it through: a call that
/// began before an outage and ends after it neither closes the breaker nor opens it.
#[derive(Clone)]
pub struct Breaker {
    config: BreakerConfig,
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<BreakerState>>,
}

#[derive(Debug)]
struct BreakerState {
    phase: BreakerPhase,
    /// The number of phase changes.
    generation: u64,
    /// The failure of the last call that counted against the endpoint.
    last_failure: Option<ErrorText>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BreakerPhase {
    /// Calls are let through; this many failed in a row.
    Closed { failures: u32 },
    /// No call is let through until this time, in monotonic time.
    Open { until: Duration },
    /// A probe is running since this time, in monotonic time.
    HalfOpen { since: Duration },
}

impl BreakerState {
    fn enter(&mut self, phase: BreakerPhase) {
        self.phase = phase;
        self.generation += 1;
    }
}

impl Breaker {
    /// Makes a closed breaker.
    #[must_use]
    pub fn new(config: BreakerConfig, clock: Arc<dyn Clock>) -> Self {
        let config = BreakerConfig { failures: config.failures.max(1), ..config };
        let phase = BreakerPhase::Closed { failures: 0 };
        let state = BreakerState { phase, generation: 0, last_failure: None };
        Self { config, clock, state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, BreakerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether a call may be made now. The call is admitted by [`Breaker::admit`] once it is made.
    fn check(&self) -> Result<(), CircuitOpen> {
        let state = self.state();
        match self.refused_for(&state) {
            Some(wait) => Err(CircuitOpen::new(wait, state.last_failure.clone())),
            None => Ok(()),
        }
    }

    /// Admits a call that is made now, as the probe if the circuit was open; otherwise returns the
    /// delay and its cause.
    fn admit(&self) -> Result<Permit, CircuitOpen> {
        let mut state = self.state();
        if let Some(wait) = self.refused_for(&state) {
            return Err(CircuitOpen::new(wait, state.last_failure.clone()));
        }
        if let BreakerPhase::Open { .. } = state.phase {
            state.enter(BreakerPhase::HalfOpen { since: self.clock.monotonic() });
        }
        Ok(Permit { breaker: self.clone(), generation: state.generation })
    }

    /// Returns the time for which no call is let through; `None` if one is let through now.
    fn refused_for(&self, state: &BreakerState) -> Option<Duration> {
        let now = self.clock.monotonic();
        match state.phase {
            BreakerPhase::Closed { .. } => None,
            BreakerPhase::Open { until } => {
                Some(until.saturating_sub(now)).filter(|wait| !wait.is_zero())
            }
            BreakerPhase::HalfOpen { since } => {
                // The end of the probe is unknown, so the delay is the time it has taken so far.
                let taken = now.saturating_sub(since);
                Some(taken.max(MIN_PROBE_WAIT).min(self.config.open_for))
            }
        }
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker")
            .field("config", &self.config)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// A call that was let through.
#[derive(Debug)]
struct Permit {
    breaker: Breaker,
    /// The generation of the state that let it through.
    generation: u64,
}

impl Permit {
    /// Records the result of the call.
    fn record<T, E: Failure + 'static>(self, result: &Result<T, E>) {
        let failure = result.as_ref().err().filter(|error| error.counts_against());
        let mut state = self.breaker.state();
        if state.generation != self.generation {
            return;
        }
        match (state.phase, failure) {
            (BreakerPhase::Closed { .. }, None) => {
                state.phase = BreakerPhase::Closed { failures: 0 }
            }
            (_, None) => state.enter(BreakerPhase::Closed { failures: 0 }),
            (phase, Some(error)) => {
                state.last_failure = Some(ErrorText::from_error(error));
                let limit = self.breaker.config.failures;
                let failures = match phase {
                    BreakerPhase::Closed { failures } => failures + 1,
                    BreakerPhase::HalfOpen { .. } | BreakerPhase::Open { .. } => limit,
                };
                if failures < limit {
                    state.phase = BreakerPhase::Closed { failures };
                } else {
                    let open_for = self.breaker.config.open_for;
                    tracing::warn!(failures, ?open_for, code = error.code(), "circuit opens");
                    let until = self.breaker.clock.monotonic().saturating_add(open_for);
                    state.enter(BreakerPhase::Open { until });
                }
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.breaker.state();
        if matches!(state.phase, BreakerPhase::HalfOpen { .. })
            && state.generation == self.generation
        {
            // The probe has no result, so the next call is the probe.
            state.enter(BreakerPhase::Open { until: Duration::ZERO });
        }
    }
}

#[cfg(test)]
mod tests;
