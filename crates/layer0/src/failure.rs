//! The facts every error states, and what wraps an error without changing them.

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

/// The facts of a failure: a stable code, an honest retry answer, an honest effect answer, and its meaning for the
/// endpoint that was asked.
///
/// Retry policies, logs and models read these facts; nothing reads the text of an error to decide.
/// An implementation is one match with a row for each variant and without a `_` arm, so that a new
/// variant cannot be added without deciding its facts.
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
    /// Returns the row of the failure.
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

    /// Returns whether the same thing may be tried again. By default it may where `retry()` is anything but
    /// [`Retry::Never`]; retry policies ask this first, and hear an override ([`stated_facts`]).
    fn is_retryable(&self) -> bool {
        self.retry().is_retryable()
    }

    /// Returns whether another endpoint may do better.
    fn elsewhere(&self) -> Elsewhere {
        self.facts().elsewhere
    }

    /// Returns whether it counts against the endpoint, so that it is left alone after several failures.
    fn counts_against(&self) -> bool {
        self.facts().counts_against
    }

    /// Returns advice for a person, if the failure has better advice than its code. [`hint`] is the text to show.
    ///
    /// A hint is no part of the message, holds no secret, and nothing decides by it.
    fn hint(&self) -> Option<Cow<'_, str>> {
        None
    }
}

/// Returns the facts of a failure as its methods state them, which may differ from its row where a method is
/// overridden. Policies and wrappers go by these.
///
/// [`Failure::is_retryable`] is read first: if it is false, the answer is [`Retry::Never`]; if it is true and `retry()`
/// never, it is [`Retry::Backoff`].
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

/// Returns a failure's advice for a person: its own hint, else the advice for its code in the
/// [catalogue](crate::code::CATALOGUE). Empty for a code that is not there.
#[must_use]
pub fn hint<'f>(failure: &'f (impl Failure + ?Sized)) -> Cow<'f, str> {
    failure.hint().unwrap_or_else(|| {
        code::find(failure.code()).map_or(Cow::Borrowed(""), |entry| entry.advice.into())
    })
}

/// Wraps the last error of a retry loop that gave up.
///
/// The class is never rewritten: code and effect are those of `last`. The retry answer becomes
/// [`Retry::Never`], so that an outer retry layer does not multiply the attempts of an inner one.
///
/// Retry: never. Effect: as the last error says.
#[derive(Debug, ThisError)]
#[error("{}", text::gave_up(*attempts))]
#[non_exhaustive]
pub struct Exhausted<E: Error + 'static> {
    /// The number of attempts, the first included.
    pub attempts: u32,
    /// The time that the attempts and the waits between them took.
    pub elapsed: Duration,
    /// The failure of the last attempt.
    #[source]
    pub last: E,
}

impl<E: Error + 'static> Exhausted<E> {
    /// Makes the error; `last` is what the last attempt failed with.
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

/// An error inside another one of the same enum, on the heap.
///
/// Unlike a `Box`, it is no error itself: `source()` of the error around it is the error inside,
/// which a caller can downcast to.
#[derive(Debug)]
pub struct Inner<E>(Box<E>);

impl<E> Inner<E> {
    /// Returns the error inside.
    #[must_use]
    pub fn into_inner(self) -> E {
        *self.0
    }
}

impl<E> From<E> for Inner<E> {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

impl<E> std::ops::Deref for Inner<E> {
    type Target = E;

    fn deref(&self) -> &E {
        &self.0
    }
}

impl<E> std::ops::DerefMut for Inner<E> {
    fn deref_mut(&mut self) -> &mut E {
        &mut self.0
    }
}

/// The error that an attempt was cut off by the timeout of the layer around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ThisError)]
#[error("timed out after {}", Seconds(*after))]
#[non_exhaustive]
pub struct TimedOut {
    /// The limit that was reached.
    pub after: Duration,
}

impl TimedOut {
    /// Makes the error; `after` is the limit.
    #[must_use]
    pub const fn new(after: Duration) -> Self {
        Self { after }
    }
}

/// The error that a circuit breaker refused a call without making it.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error("circuit is open for {}", Seconds(*retry_after))]
#[non_exhaustive]
pub struct CircuitOpen {
    /// The time until the next probe is let through.
    pub retry_after: Duration,
    /// The failure of the last call that was made, in this run or in another one.
    #[source]
    pub last: Option<ErrorText>,
}

impl CircuitOpen {
    /// Makes the error; `last` is what opened the circuit.
    #[must_use]
    pub const fn new(retry_after: Duration, last: Option<ErrorText>) -> Self {
        Self { retry_after, last }
    }
}

/// Prints a duration as people write it in messages: `30s`, `1.5s`, `250ms`.
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
