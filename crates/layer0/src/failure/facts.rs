//! The facts of a failure.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The facts of a failure: its code and the answers for policies.
///
/// A constructor derives further facts from the retry answer: if trying again can help, another endpoint may do better
/// too, and the failure counts against this one. Exceptions are set explicitly.
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
    /// Whether a new request, which repeats nothing, can help. Equal to `retry`, but unchanged when a layer gives up.
    pub later: Retry,
    /// Whether the attempt may already have acted on the world.
    pub effect: Effect,
    /// Whether another endpoint may do better.
    pub elsewhere: Elsewhere,
    /// Whether the failure counts against the endpoint: after several of them it gets no requests for a while. A request
    /// to slow down does not count, because the endpoint is alive.
    pub counts_against: bool,
    /// Whether another endpoint of the same model, or another key, may do better at once: this endpoint asked to slow
    /// down, or refused its key.
    pub beside: bool,
    /// Whether the request was sent. `false` if an open circuit refused it; such a refusal is no attempt.
    pub sent: bool,
}

impl Facts {
    /// Creates facts with this retry answer.
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

    /// Creates the facts of a failure that repeats on every attempt.
    #[must_use]
    pub const fn never(code: &'static str, effect: Effect) -> Self {
        Self::new(code, Retry::Never, effect)
    }

    /// Creates the facts of a failure that a later attempt may avoid.
    #[must_use]
    pub const fn backoff(code: &'static str, effect: Effect) -> Self {
        Self::new(code, Retry::Backoff, effect)
    }

    /// Creates facts with a retry delay, if there is a `hint`.
    #[must_use]
    pub const fn from_hint(code: &'static str, hint: Option<Duration>, effect: Effect) -> Self {
        Self::new(code, Retry::from_hint(hint), effect)
    }

    /// Replaces the code.
    #[must_use]
    pub const fn with_code(self, code: &'static str) -> Self {
        Self { code, ..self }
    }

    /// Replaces only the retry answer.
    #[must_use]
    pub const fn with_retry(self, retry: Retry) -> Self {
        Self { retry, ..self }
    }

    /// Replaces the retry answers.
    #[must_use]
    pub const fn with_retry_facts(self, RetryFacts { retry, later }: RetryFacts) -> Self {
        Self { retry, later, ..self }
    }

    /// Reduces the retry delays by this time; a delay that has passed is zero. Facts with a delay are made by
    /// [`Facts::from_hint`].
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

    /// Replaces the retry answer for a request that repeats nothing.
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

    /// Sets whether the failure counts against the endpoint.
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

/// The recorded retry answers of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RetryFacts {
    /// Whether trying the same thing again can help, and the wait before.
    pub retry: Retry,
    /// Whether a new request, which repeats nothing, can help.
    pub later: Retry,
}

/// Whether trying again can help.
///
/// The enum is closed on purpose: a policy has to handle every answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// Trying again results in the same failure.
    Never,
    /// Trying again can help, after a wait that the caller chooses.
    Backoff,
    /// Trying again can help, but not before this time has passed.
    #[serde(rename = "after_ms", with = "crate::millis")]
    After(Duration),
}

impl Retry {
    /// Returns whether this is anything but [`Retry::Never`].
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        !matches!(self, Self::Never)
    }

    /// Returns [`Retry::After`] if there is a hint, otherwise [`Retry::Backoff`].
    #[must_use]
    pub const fn from_hint(hint: Option<Duration>) -> Self {
        match hint {
            Some(wait) => Self::After(wait),
            None => Self::Backoff,
        }
    }
}

/// Whether the attempt may already have acted on the world.
///
/// The enum is closed on purpose: a policy has to handle every answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Nothing was done; a repeat is harmless.
    None,
    /// The attempt may have acted; only an idempotent request may be repeated.
    Unknown,
    /// The attempt acted; a repeat would act twice.
    Happened,
}

/// Whether another endpoint may do better.
///
/// The enum is closed on purpose: a policy has to handle every answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elsewhere {
    /// Another endpoint would refuse it too.
    Never,
    /// Another endpoint may do better, after the useful retries at this one.
    AfterRetries,
    /// Another endpoint may do better, and waiting is useless: the circuit of this one is open, or its quota is used
    /// up.
    AtOnce,
}

impl Elsewhere {
    /// Returns whether this is anything but [`Elsewhere::Never`].
    #[must_use]
    pub const fn is_possible(self) -> bool {
        !matches!(self, Self::Never)
    }
}
