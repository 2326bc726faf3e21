//! The facts of a failure, as one row.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The row of a failure: its code, and the facts that a policy reads.
///
/// A constructor sets the facts that follow from its retry answer: if trying again can help, another endpoint may do
/// better as well, and the failure counts against this one. A row that differs sets them itself.
///
/// ```
/// use layer0::failure::{Effect, Elsewhere, Facts, Retry};
///
/// let quota = Facts::never("provider.quota_exhausted", Effect::None).with_elsewhere(Elsewhere::AtOnce);
/// assert_eq!(quota.retry, Retry::Never);
/// assert!(!quota.counts_against);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// The stable, dotted code, such as `provider.rate_limited`.
    pub code: &'static str,
    /// Whether trying the same thing again can help, and the wait before.
    pub retry: Retry,
    /// Whether trying again could help a caller that repeats nothing. As `retry`, also after a layer gave up.
    pub later: Retry,
    /// Whether the attempt may already have acted on the world.
    pub effect: Effect,
    /// Whether another endpoint may do better.
    pub elsewhere: Elsewhere,
    /// Whether it counts against the endpoint, so that it is left alone after several failures. An endpoint that asks
    /// to slow down is alive.
    pub counts_against: bool,
    /// Whether another endpoint of the same model, or another key, may do better at once. True if this one asks to slow
    /// down or refuses its key.
    pub beside: bool,
    /// Whether the request was sent. `false` if an open circuit refused it before: that is no attempt.
    pub sent: bool,
}

impl Facts {
    /// States a failure with this retry answer.
    #[must_use]
    pub const fn new(code: &'static str, retry: Retry, effect: Effect) -> Self {
        let (elsewhere, counts_against) = match retry {
            Retry::Never => (Elsewhere::Never, false),
            Retry::Backoff | Retry::After(_) => (Elsewhere::AfterRetries, true),
        };
        Self {
            code,
            retry,
            later: retry,
            effect,
            elsewhere,
            counts_against,
            beside: false,
            sent: true,
        }
    }

    /// States a failure that trying again gives once more.
    #[must_use]
    pub const fn never(code: &'static str, effect: Effect) -> Self {
        Self::new(code, Retry::Never, effect)
    }

    /// States a failure that a later attempt may not meet.
    #[must_use]
    pub const fn backoff(code: &'static str, effect: Effect) -> Self {
        Self::new(code, Retry::Backoff, effect)
    }

    /// States a failure with a retry delay, if there is a `hint`.
    #[must_use]
    pub const fn hinted(code: &'static str, hint: Option<Duration>, effect: Effect) -> Self {
        Self::new(code, Retry::hinted(hint), effect)
    }

    /// Replaces the code.
    #[must_use]
    pub const fn with_code(self, code: &'static str) -> Self {
        Self { code, ..self }
    }

    /// Replaces the retry answer alone.
    #[must_use]
    pub const fn with_retry(self, retry: Retry) -> Self {
        Self { retry, ..self }
    }

    /// Replaces the retry answers.
    #[must_use]
    pub const fn with_retry_facts(self, RetryFacts { retry, later }: RetryFacts) -> Self {
        Self { retry, later, ..self }
    }

    /// Replaces the hints by what is left of them after this time; a hint that has passed is zero.
    #[must_use]
    pub const fn after(self, passed: Duration) -> Self {
        const fn reduce(retry: Retry, passed: Duration) -> Retry {
            match retry {
                Retry::After(hint) => Retry::After(hint.saturating_sub(passed)),
                Retry::Never | Retry::Backoff => retry,
            }
        }
        Self { retry: reduce(self.retry, passed), later: reduce(self.later, passed), ..self }
    }

    /// Returns the retry answers.
    #[must_use]
    pub const fn retry_facts(&self) -> RetryFacts {
        RetryFacts { retry: self.retry, later: self.later }
    }

    /// Replaces what helps one that repeats nothing.
    #[must_use]
    pub const fn with_later(self, later: Retry) -> Self {
        Self { later, ..self }
    }

    /// Replaces the effect.
    #[must_use]
    pub const fn with_effect(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }

    /// Sets whether another endpoint may do better.
    #[must_use]
    pub const fn with_elsewhere(self, elsewhere: Elsewhere) -> Self {
        Self { elsewhere, ..self }
    }

    /// Sets whether it counts against the endpoint.
    #[must_use]
    pub const fn with_counts_against(self, counts_against: bool) -> Self {
        Self { counts_against, ..self }
    }

    /// Sets whether another endpoint of the same model may do better at once.
    #[must_use]
    pub const fn with_beside(self, beside: bool) -> Self {
        Self { beside, ..self }
    }

    /// Sets whether the request was sent.
    #[must_use]
    pub const fn with_sent(self, sent: bool) -> Self {
        Self { sent, ..self }
    }
}

/// The retry answers of a failure, as a record keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RetryFacts {
    /// Whether trying the same thing again can help, and the wait before.
    pub retry: Retry,
    /// Whether trying again could help a caller that repeats nothing.
    pub later: Retry,
}

/// The answer whether trying again can help.
///
/// Closed on purpose: a policy must handle every answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// Trying again gives the same failure.
    Never,
    /// Trying again can help after a wait the caller chooses.
    Backoff,
    /// Trying again can help, and not earlier than this.
    #[serde(rename = "after_ms", with = "crate::millis")]
    After(Duration),
}

impl Retry {
    /// Returns whether this is anything but [`Retry::Never`].
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        !matches!(self, Self::Never)
    }

    /// Returns [`Retry::After`] when there is a hint, else [`Retry::Backoff`].
    #[must_use]
    pub const fn hinted(hint: Option<Duration>) -> Self {
        match hint {
            Some(wait) => Self::After(wait),
            None => Self::Backoff,
        }
    }
}

/// The answer whether the attempt may already have acted on the world.
///
/// Closed on purpose: a policy must handle every answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Nothing was done; a repeat is harmless.
    None,
    /// It may or may not have acted; only an idempotent request may be repeated.
    Unknown,
    /// It acted; a repeat acts twice.
    Happened,
}

/// The answer whether another endpoint may do better.
///
/// Closed on purpose: a policy must handle every answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elsewhere {
    /// Another one would refuse it just the same.
    Never,
    /// It may, once this one was tried as often as it is worth.
    AfterRetries,
    /// It may, and waiting for this one is of no use: its circuit is open, its quota is used up.
    AtOnce,
}

impl Elsewhere {
    /// Returns whether this is anything but [`Elsewhere::Never`].
    #[must_use]
    pub const fn is_possible(self) -> bool {
        !matches!(self, Self::Never)
    }
}
