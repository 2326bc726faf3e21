//! Facts that every error states, and wrappers that keep them.

mod chain;
mod facts;

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use thiserror::Error as ThisError;

use crate::{code, text};

pub use chain::{Chain, ErrorText, chain, sources};
pub use facts::{Effect, Elsewhere, Facts, Retry, RetryFacts};

/// An error with its facts: a stable code, whether another attempt can help, whether it may have acted, and its meaning
/// for the endpoint.
///
/// Retry policies, logs and models read these facts; no decision depends on the text of an error. An implementation is
/// one match with a row for each variant and no `_` arm, so that a new variant cannot be added without its facts.
///
/// ```
/// use layer0::failure::{Effect, Facts, Failure};
///
/// /// Says why a scale gave no weight.
/// #[derive(Debug, thiserror::Error)]
/// enum ScaleError {
///     /// It still swings.
///     ///
///     /// Retry: with backoff. Effect: none.
///     #[error("not at rest")]
///     Swinging,
///     /// It is broken.
///     ///
///     /// Retry: never. Effect: none.
///     #[error("out of order")]
///     OutOfOrder,
/// }
///
/// impl Failure for ScaleError {
///     fn facts(&self) -> Facts {
///         match self {
///             Self::Swinging => Facts::backoff("scale.swinging", Effect::None),
///             Self::OutOfOrder => Facts::never("scale.out_of_order", Effect::None),
///         }
///     }
/// }
/// assert!(ScaleError::Swinging.is_retryable());
/// ```
pub trait Failure: Error {
    /// Returns the facts of the failure.
    fn facts(&self) -> Facts;

    /// Returns the stable, dotted code, such as `provider.rate_limited`.
    fn code(&self) -> &'static str {
        self.facts().code
    }

    /// Returns whether trying the same thing again can help, and the wait before.
    fn retry(&self) -> Retry {
        self.facts().retry
    }

    /// Returns whether the attempt may already have acted on the world.
    fn effect(&self) -> Effect {
        self.facts().effect
    }

    /// Returns whether another attempt now, with backoff, can help. The default is whether `retry()` is anything but
    /// [`Retry::Never`]. Retry policies ask this first, and respect an override ([`stated_facts`]). It is false once a
    /// retry layer has given up; a caller that tries later asks [`may_pass_later`](Failure::may_pass_later).
    fn is_retryable(&self) -> bool {
        self.retry().is_retryable()
    }

    /// Returns whether the failure may have passed when the same work is begun anew later, also after a retry layer has
    /// given up. A job queue asks this. Where [`effect`](Failure::effect) is not [`Effect::None`], the new work may act
    /// a second time.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use layer0::error::OperatorError;
    /// use layer0::failure::{Exhausted, Failure};
    ///
    /// let last = OperatorError::Retryable("queue is full".into());
    /// let error = Exhausted::new(3, Duration::from_secs(3), last);
    /// assert!(!error.is_retryable());
    /// assert!(error.may_pass_later());
    /// ```
    fn may_pass_later(&self) -> bool {
        stated_facts(self).later.is_retryable()
    }

    /// Returns whether another endpoint may do better.
    fn elsewhere(&self) -> Elsewhere {
        self.facts().elsewhere
    }

    /// Returns whether the failure counts against the endpoint: after several of them it gets no requests for a while.
    fn counts_against(&self) -> bool {
        self.facts().counts_against
    }

    /// Returns advice for a person if it is better than that of the code. [`hint`] returns the text to show.
    ///
    /// A hint is not part of the message, contains no secret, and affects no decision.
    fn hint(&self) -> Option<Cow<'_, str>> {
        None
    }
}

/// Returns the facts of a failure according to its methods, which may override those of its row. Policies and wrappers
/// use these facts.
///
/// [`Failure::is_retryable`] is read first: if it is false, the answer is [`Retry::Never`]; if it is true and `retry()`
/// is [`Retry::Never`], the answer is [`Retry::Backoff`].
///
/// ```
/// use layer0::failure::{Effect, Facts, Failure, Retry, stated_facts};
///
/// /// A refusal by an operator in their maintenance window.
/// #[derive(Debug, thiserror::Error)]
/// #[error("closed until {opens_at}")]
/// struct Closed {
///     opens_at: u64,
/// }
///
/// impl Failure for Closed {
///     fn facts(&self) -> Facts {
///         Facts::backoff("shop.closed", Effect::None)
///     }
///
///     fn is_retryable(&self) -> bool {
///         self.opens_at < 5
///     }
/// }
/// assert_eq!(stated_facts(&Closed { opens_at: 60 }).retry, Retry::Never);
/// ```
#[must_use]
pub fn stated_facts(failure: &(impl Failure + ?Sized)) -> Facts {
    let retry = match (failure.is_retryable(), failure.retry()) {
        (false, _) => Retry::Never,
        (true, Retry::Never) => Retry::Backoff,
        (true, retry) => retry,
    };
    let facts = failure.facts();
    let later = if retry == facts.retry { facts.later } else { retry };
    Facts {
        code: failure.code(),
        retry,
        later,
        effect: failure.effect(),
        elsewhere: failure.elsewhere(),
        counts_against: failure.counts_against(),
        ..facts
    }
}

/// Returns a failure's advice for a person: its own hint, otherwise the advice for its code in the
/// [catalogue](crate::code::CATALOGUE). Empty for a code that is not in the catalogue.
#[must_use]
pub fn hint<'f>(failure: &'f (impl Failure + ?Sized)) -> Cow<'f, str> {
    failure.hint().unwrap_or_else(|| {
        code::find(failure.code()).map_or(Cow::Borrowed(""), |entry| entry.advice.into())
    })
}

/// The last error of a retry loop that gave up.
///
/// Code and effect remain those of `last`. The retry answer becomes [`Retry::Never`], so that an outer retry layer does
/// not multiply the attempts of an inner one.
///
/// Retry: never. Effect: as the last error says.
#[derive(Debug, ThisError)]
#[error("{}", text::gave_up(*attempts))]
#[non_exhaustive]
pub struct Exhausted<E: Error + 'static> {
    /// The number of attempts, including the first.
    pub attempts: u32,
    /// The total time of the attempts and of the waits between them.
    pub elapsed: Duration,
    /// The failure of the last attempt.
    #[source]
    pub last: E,
}

impl<E: Error + 'static> Exhausted<E> {
    /// Creates the error; `last` is the failure of the last attempt.
    #[must_use]
    pub const fn new(attempts: u32, elapsed: Duration, last: E) -> Self {
        Self { attempts, elapsed, last }
    }
}

impl<E: Failure + 'static> Failure for Exhausted<E> {
    fn facts(&self) -> Facts {
        stated_facts(&self.last).with_retry(Retry::Never)
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        self.last.hint()
    }
}

/// An error inside another one, on the heap.
///
/// Unlike a `Box`, it is no error itself: `source()` of the outer error returns the inner error, to which a caller can
/// downcast.
#[derive(Debug)]
pub struct InnerError<E>(Box<E>);

impl<E> InnerError<E> {
    /// Returns the inner error.
    #[must_use]
    pub fn into_inner(self) -> E {
        *self.0
    }
}

impl<E> From<E> for InnerError<E> {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

impl<E> From<Box<E>> for InnerError<E> {
    fn from(error: Box<E>) -> Self {
        Self(error)
    }
}

impl<E> std::ops::Deref for InnerError<E> {
    type Target = E;

    fn deref(&self) -> &E {
        &self.0
    }
}

impl<E> std::ops::DerefMut for InnerError<E> {
    fn deref_mut(&mut self) -> &mut E {
        &mut self.0
    }
}

/// The error of an attempt that reached the timeout of the layer around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ThisError)]
#[error("timed out after {}", Seconds(*after))]
#[non_exhaustive]
pub struct TimedOut {
    /// The limit that was reached.
    pub after: Duration,
}

impl TimedOut {
    /// Creates the error for this limit.
    #[must_use]
    pub const fn new(after: Duration) -> Self {
        Self { after }
    }
}

/// The error of a call that was refused by a circuit breaker.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error("circuit is open for {}", Seconds(*retry_after))]
#[non_exhaustive]
pub struct CircuitOpen {
    /// The time until the next probe is allowed.
    pub retry_after: Duration,
    /// The failure of the last call, in this run or in another one.
    #[source]
    pub last: Option<ErrorText>,
}

impl CircuitOpen {
    /// Creates the error; `last` is the failure that opened the circuit.
    #[must_use]
    pub const fn new(retry_after: Duration, last: Option<ErrorText>) -> Self {
        Self { retry_after, last }
    }
}

/// A duration formatted for messages: `30s`, `1.5s`, `250ms`.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_structs, reason = "it is a duration, and prints nothing else")]
pub struct Seconds(pub Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        if ms < 1_000 {
            write!(f, "{ms}ms")
        } else if ms.is_multiple_of(1_000) {
            write!(f, "{}s", ms / 1_000)
        } else {
            let fraction = format!("{:03}", ms % 1_000);
            write!(f, "{}.{}s", ms / 1_000, fraction.trim_end_matches('0'))
        }
    }
}
