//! The decision whether a failed attempt is followed by another, and where.

use std::sync::Arc;
use std::time::Duration;

use backstop_clock::Clock;
use layer0::failure::{Effect, Elsewhere, Exhausted, Facts, Failure, Retry, stated_facts};

use crate::backoff::{Jitter, RetryConfig};
use crate::budget::RetryBudget;

/// A policy that decides, after each failed attempt, whether another one follows.
///
/// It checks in this order: whether the failure is retryable, whether it may have acted and the
/// request is idempotent, and whether there is time, an attempt and budget left. If no attempt
/// follows here, and the next endpoint may succeed, that one is called. A free endpoint of the same
/// model comes first.
///
/// Once time, attempts or budget are used up, the last error is wrapped in [`Exhausted`]. It is
/// returned unchanged when it is not retryable, may not be repeated, or requests a longer delay
/// than `max_retry_after_ms`: then the delay is still in the error and an orchestrator can park the
/// work.
///
/// ```
/// use std::sync::Arc;
///
/// use backstop_clock::SystemClock;
/// use layer0::error::OperatorError;
/// use backstop_retry::{RetryDecision, RetryConfig, RetryPolicy, RetryContext};
///
/// let policy = RetryPolicy::new(RetryConfig::default(), Arc::new(SystemClock));
/// let busy = OperatorError::Retryable("busy".into());
/// let tried = RetryContext::new(1, Default::default(), true);
/// assert!(matches!(policy.decide(&busy, tried), RetryDecision::Again(_)));
/// ```
#[derive(Debug, Clone)]
pub struct RetryPolicy {
    config: RetryConfig,
    clock: Arc<dyn Clock>,
    jitter: Jitter,
    budget: Option<RetryBudget>,
}

/// A policy's decision after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryDecision {
    /// Another attempt follows at the same endpoint, after this delay.
    Again(Duration),
    /// Another endpoint of the same model is called at once, and this one is not called for a while.
    Beside,
    /// The next endpoint is called at once.
    #[non_exhaustive]
    Next {
        /// Whether attempts, time or budget of this one are used up.
        is_exhausted: bool,
    },
    /// The endpoint requests this delay, which is too long to wait for, but not longer than
    /// [`RetryContext::max_park`]: the work is parked until then.
    Park(Duration),
    /// The failure is final.
    #[non_exhaustive]
    Stop {
        /// Whether attempts, time or budget are used up.
        is_exhausted: bool,
        /// Whether [`RetryContext::max_attempts`] is the only reason that there is no other attempt.
        is_limited: bool,
    },
}

impl RetryDecision {
    /// Returns the failure as it leaves the endpoint: wrapped in [`Exhausted`] if attempts, time or
    /// budget are used up, otherwise unchanged.
    pub fn settle<E: Failure + From<Exhausted<E>> + 'static>(
        self,
        error: E,
        tried: RetryContext,
    ) -> E {
        match self {
            Self::Next { is_exhausted: true } | Self::Stop { is_exhausted: true, .. } => {
                Exhausted::new(tried.total, tried.elapsed, error).into()
            }
            Self::Again(_)
            | Self::Beside
            | Self::Next { .. }
            | Self::Park(_)
            | Self::Stop { .. } => error,
        }
    }
}

/// The attempts so far, and the rest of a policy's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryContext {
    /// Requests sent to this endpoint, including the failed one.
    pub attempts: u32,
    /// Requests for this endpoint that were refused before they were sent. They do not count as
    /// attempts, unless the configuration allows a single attempt, which never waits.
    pub refused: u32,
    /// All requests to the model, sent or refused, including those to its other endpoints; limited
    /// by [`RetryContext::max_attempts`].
    pub total: u32,
    /// Time since the first of them began, including delays.
    pub elapsed: Duration,
    /// Whether the request may be repeated even if an attempt acted.
    pub is_idempotent: bool,
    /// A further limit of the attempts, including those at the next endpoint.
    pub max_attempts: Option<u32>,
    /// The longest next delay; the configuration's limit if `None`.
    pub time_left: Option<Duration>,
    /// Whether another endpoint follows this one.
    pub has_next: bool,
    /// Whether another endpoint was left for this one. Then a refusal of this endpoint alone, such as a wrong key, does
    /// not keep the request from the next one.
    pub has_left: bool,
    /// Whether another endpoint of the same model is free that this request has not called yet. It
    /// is called at once, which does not count as an attempt of the configuration.
    pub is_another_free: bool,
    /// The time until another endpoint of the same model can be called; `None` if none can.
    pub another_in: Option<Duration>,
    /// The longest time for which the work may be parked if an endpoint requests that; zero forbids it.
    pub max_park: Duration,
}

impl RetryContext {
    /// Describes the attempts of a request with no limits but its policy's, at the only endpoint,
    /// with each request sent.
    #[must_use]
    pub const fn new(attempts: u32, elapsed: Duration, is_idempotent: bool) -> Self {
        Self {
            attempts,
            refused: 0,
            total: attempts,
            elapsed,
            is_idempotent,
            max_attempts: None,
            time_left: None,
            has_next: false,
            has_left: false,
            is_another_free: false,
            another_in: None,
            max_park: Duration::ZERO,
        }
    }
}

/// The options left at one endpoint.
enum Here {
    /// Another attempt cannot help.
    Nothing,
    /// Attempts or time are used up.
    UsedUp,
    /// Another attempt, after this delay.
    Wait(Duration),
}

impl Here {
    /// Adds the delay for another endpoint: the shorter one counts.
    fn or_wait(self, other: Duration) -> Self {
        match self {
            Self::Wait(delay) => Self::Wait(delay.min(other)),
            Self::Nothing | Self::UsedUp => Self::Wait(other),
        }
    }
}

impl RetryPolicy {
    /// Makes a policy without a budget, with random jitter.
    #[must_use]
    pub fn new(config: RetryConfig, clock: Arc<dyn Clock>) -> Self {
        Self { config, clock, jitter: Jitter::Random, budget: None }
    }

    /// Sets the jitter of delays.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Sets the shared budget of retries at an endpoint.
    #[must_use]
    pub fn budget(mut self, budget: RetryBudget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Records the beginning of a request, which grants others their retries.
    pub fn begin(&self) {
        if let Some(budget) = &self.budget {
            budget.deposit();
        }
    }

    /// Decides what follows a failed attempt. The layers call this too; a caller with its own loop
    /// calls [`RetryPolicy::begin`] before the first attempt at an endpoint and follows the
    /// decision.
    ///
    /// An allowed retry is withdrawn from the budget; a caller that does not make it returns it
    /// with [`RetryPolicy::give_back`].
    pub fn decide(&self, error: &impl Failure, tried: RetryContext) -> RetryDecision {
        self.decide_by(stated_facts(error), tried)
    }

    /// Decides like [`RetryPolicy::decide`], for a failure with known facts.
    pub fn decide_by(&self, facts: Facts, tried: RetryContext) -> RetryDecision {
        let may_repeat = facts.effect == Effect::None || tried.is_idempotent;
        let may_differ = facts.elsewhere.is_possible() || tried.has_left && facts.beside;
        let goes_on = tried.has_next && may_repeat && may_differ;
        let is_full = tried.max_attempts.is_some_and(|max| tried.total >= max);
        let here = if may_repeat { self.here(facts, tried) } else { Here::Nothing };
        let goes_beside = may_repeat && self.goes_beside(facts, tried, &here);
        if goes_beside && !is_full {
            return RetryDecision::Beside;
        }
        let here = match self.another(facts, tried).filter(|_| may_repeat) {
            Some(wait) => here.or_wait(wait),
            None => here,
        };
        // It stops although another endpoint would be called, so that only the limit is in the way.
        let is_limited = goes_on || goes_beside;
        let (is_exhausted, is_limited) = match here {
            Here::Nothing => (false, is_limited),
            Here::UsedUp => (true, is_limited),
            Here::Wait(_) if is_full => (true, true),
            Here::Wait(delay) if self.withdraw() => return RetryDecision::Again(delay),
            Here::Wait(_) => (true, false),
        };
        if goes_on && !is_full {
            return RetryDecision::Next { is_exhausted };
        }
        match self.park(facts, tried).filter(|_| may_repeat && !is_full) {
            Some(delay) => RetryDecision::Park(delay),
            None => RetryDecision::Stop { is_exhausted, is_limited },
        }
    }

    /// Returns the time for which the work is parked, if the requested delay is too long to wait for.
    fn park(&self, facts: Facts, tried: RetryContext) -> Option<Duration> {
        let Retry::After(hint) = facts.retry else { return None };
        let is_long = hint > Duration::from_millis(self.config.max_retry_after_ms);
        (is_long && hint <= tried.max_park).then(|| RetryConfig::spread_hint(hint, &self.jitter))
    }

    /// Returns whether another endpoint of the same model is called at once, because this one
    /// refuses or has no options left.
    fn goes_beside(&self, facts: Facts, tried: RetryContext, here: &Here) -> bool {
        let is_spent = facts.retry.is_retryable() && !matches!(here, Here::Wait(_));
        tried.is_another_free
            && (facts.beside || is_spent)
            && tried.elapsed <= Duration::from_millis(self.config.deadline_ms)
    }

    /// Returns the delay for another endpoint of the same model, if it is worth waiting for.
    fn another(&self, facts: Facts, tried: RetryContext) -> Option<Duration> {
        let may_differ = facts.beside || facts.retry.is_retryable();
        let wait = tried.another_in.filter(|_| may_differ)?;
        let is_short = wait <= Duration::from_millis(self.config.max_retry_after_ms);
        let delay = self.at_least_backoff(wait, tried);
        (is_short && !self.is_late(delay, tried)).then_some(delay)
    }

    fn here(&self, facts: Facts, tried: RetryContext) -> Here {
        if tried.has_next && facts.elsewhere == Elsewhere::AtOnce {
            return Here::Nothing;
        }
        let delay = match facts.retry {
            Retry::Never => return Here::Nothing,
            Retry::Backoff => self.config.backoff(tried.total, &self.jitter),
            Retry::After(hint) if hint > Duration::from_millis(self.config.max_retry_after_ms) => {
                return Here::Nothing;
            }
            Retry::After(hint) => self.at_least_backoff(hint, tried),
        };
        if self.is_late(delay, tried) || self.config.is_spent(tried.attempts, tried.refused) {
            return Here::UsedUp;
        }
        Here::Wait(delay)
    }

    /// Returns the delay for a requested one, which is at least the backoff: some endpoints request
    /// no delay, or a millisecond.
    fn at_least_backoff(&self, hint: Duration, tried: RetryContext) -> Duration {
        let wait = RetryConfig::spread_hint(hint, &self.jitter);
        wait.max(self.config.backoff(tried.total, &self.jitter))
    }

    /// Returns whether a delay would exceed the deadline, or the time that the request has left.
    fn is_late(&self, delay: Duration, tried: RetryContext) -> bool {
        let deadline = Duration::from_millis(self.config.deadline_ms);
        tried.elapsed.saturating_add(delay) > deadline
            || tried.time_left.is_some_and(|left| delay > left)
    }

    /// Returns the retry that [`RetryDecision::Again`] withdrew from the budget, after a delay without
    /// an attempt.
    pub fn give_back(&self) {
        if let Some(budget) = &self.budget {
            budget.give_back();
        }
    }

    fn withdraw(&self) -> bool {
        self.budget.as_ref().is_none_or(RetryBudget::withdraw)
    }

    pub(crate) const fn config(&self) -> &RetryConfig {
        &self.config
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }
}

/// Returns the index of the failure that represents several: the first of those that pass soonest
/// by [`Facts::later`], the last one if none passes. A failure without a requested delay passes
/// before one with it.
pub fn first_to_pass(failures: impl IntoIterator<Item = Facts>) -> Option<usize> {
    let later: Vec<Retry> = failures.into_iter().map(|facts| facts.later).collect();
    soonest(later.iter().copied()).or(later.len().checked_sub(1))
}

/// Returns the index of the failure that can be retried first; `None` if none can. One without a
/// requested delay comes before one with it.
pub fn first_to_retry(failures: impl IntoIterator<Item = Facts>) -> Option<usize> {
    soonest(failures.into_iter().map(|facts| facts.retry))
}

fn soonest(answers: impl IntoIterator<Item = Retry>) -> Option<usize> {
    let wait = |(place, retry)| match retry {
        Retry::Never => None,
        Retry::Backoff => Some((place, Duration::ZERO)),
        Retry::After(hint) => Some((place, hint)),
    };
    let waits = answers.into_iter().enumerate().filter_map(wait);
    waits.min_by_key(|(_, wait)| *wait).map(|(place, _)| place)
}

#[cfg(test)]
mod tests;
