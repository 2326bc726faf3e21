//! What a failure states, as one row.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The row of a failure: its code, and what a policy reads of it.
///
/// A constructor gives what goes with its retry answer: where trying again can help, another endpoint
/// may do better as well, and the failure speaks against this one. A row that differs says so.
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
    /// Can trying the same thing again help, and how long is the wait?
    pub retry: Retry,
    /// Could trying again help one that repeats nothing? As `retry`, also after a layer gave up.
    pub later: Retry,
    /// May the attempt already have acted on the world?
    pub effect: Effect,
    /// May another endpoint do better?
    pub elsewhere: Elsewhere,
    /// Does it speak against the endpoint, so that it is left alone after several of them? An endpoint
    /// that asks to slow down is alive.
    pub counts_against: bool,
    /// May another endpoint of the same model, or another key, do better at once? So it is where this one
    /// asks to slow down, and where its key is refused.
    pub beside: bool,
    /// Was the request sent? `false` where it was refused before, by an open circuit: that is no attempt.
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

    /// States a failure that says how long to wait, where there is a `hint`.
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

    /// Replaces what is said of trying again.
    #[must_use]
    pub const fn with_retry_facts(self, RetryFacts { retry, later }: RetryFacts) -> Self {
        Self { retry, later, ..self }
    }

    /// Replaces the hints by what is left of them after this time; a hint that has passed is zero.
    #[must_use]
    pub const fn after(self, passed: Duration) -> Self {
        const fn left(retry: Retry, passed: Duration) -> Retry {
            match retry {
                Retry::After(hint) => Retry::After(hint.saturating_sub(passed)),
                Retry::Never | Retry::Backoff => retry,
            }
        }
        Self { retry: left(self.retry, passed), later: left(self.later, passed), ..self }
    }

    /// Returns what is said of trying again.
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

    /// Says whether another endpoint may do better.
    #[must_use]
    pub const fn with_elsewhere(self, elsewhere: Elsewhere) -> Self {
        Self { elsewhere, ..self }
    }

    /// Says whether it speaks against the endpoint.
    #[must_use]
    pub const fn with_counts_against(self, counts_against: bool) -> Self {
        Self { counts_against, ..self }
    }

    /// Says whether another endpoint of the same model may do better at once.
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

/// What a failure says of trying again, as a record keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RetryFacts {
    /// Can trying the same thing again help, and how long is the wait?
    pub retry: Retry,
    /// Could trying again help one that repeats nothing?
    pub later: Retry,
}

/// Answers "can trying again help?".
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
    /// Is this anything but [`Retry::Never`]?
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

/// Answers "may the attempt already have acted on the world?".
///
/// Closed on purpose: a policy must handle every answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing was done; a repeat is harmless.
    None,
    /// It may or may not have acted; only an idempotent request may be repeated.
    Unknown,
    /// It acted; a repeat acts twice.
    Happened,
}

/// Answers "may another endpoint do better?".
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
    /// Is this anything but [`Elsewhere::Never`]?
    #[must_use]
    pub const fn is_possible(self) -> bool {
        !matches!(self, Self::Never)
    }
}
