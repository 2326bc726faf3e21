//! The three facts every error states, and what wraps an error without changing them.

mod chain;

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use thiserror::Error as ThisError;

use crate::code;

pub use chain::{Chain, ErrorText, chain, sources};

/// States what a failure is: a stable code, an honest retry answer and an honest effect answer.
///
/// Retry policies, logs and models read these facts; nothing reads the text of an error to decide.
/// Implementations match on every variant without a `_` arm, so that a new variant cannot be added
/// without deciding its facts.
pub trait Failure: Error {
    /// Returns the stable, dotted code, such as `provider.rate_limited`.
    fn code(&self) -> &'static str;

    /// Says whether trying the same thing again can help, and how long to wait.
    fn retry(&self) -> Retry;

    /// Says whether the attempt may already have acted on the world.
    fn effect(&self) -> Effect;

    /// Is `retry()` anything but [`Retry::Never`]?
    fn is_retryable(&self) -> bool {
        self.retry().is_retryable()
    }

    /// May another endpoint do better? It may where trying again can help, unless an implementation
    /// knows more: a quota that is used up is gone here and may be there elsewhere.
    fn elsewhere(&self) -> bool {
        self.is_retryable()
    }

    /// Does it speak against the endpoint, so that it is left alone after several of them? So it does
    /// where trying again can help, unless an implementation knows more: an endpoint that asks to slow
    /// down is alive.
    fn counts_against(&self) -> bool {
        self.is_retryable()
    }

    /// Says how a person can mend it, where the failure knows more than its code does. [`hint`] is
    /// what to show.
    ///
    /// A hint is no part of the message, holds no secret, and nothing decides by it.
    fn hint(&self) -> Option<Cow<'_, str>> {
        None
    }
}

/// Says how a person can mend a failure: its own hint, else the advice for its code in the
/// [catalogue](crate::code::CATALOGUE). Empty for a code that is not there.
#[must_use]
pub fn hint<'f>(failure: &'f (impl Failure + ?Sized)) -> Cow<'f, str> {
    failure.hint().unwrap_or_else(|| {
        code::find(failure.code()).map_or(Cow::Borrowed(""), |entry| entry.advice.into())
    })
}

/// Answers "can trying again help?".
///
/// Closed on purpose: a policy must handle every answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Trying again gives the same failure.
    Never,
    /// Trying again can help after a wait the caller chooses.
    Backoff,
    /// Trying again can help, and not earlier than this.
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

/// Wraps the last error of a retry loop that gave up.
///
/// The class is never rewritten: code and effect are those of `last`. The retry answer becomes
/// [`Retry::Never`], so that an outer retry layer does not multiply the attempts of an inner one.
#[derive(Debug, ThisError)]
#[error("gave up after {attempts} attempts")]
pub struct Exhausted<E: Error + 'static> {
    /// How many attempts were made, the first included.
    pub attempts: u32,
    /// How long the attempts and the waits between them took.
    pub elapsed: Duration,
    /// What the last attempt failed with.
    #[source]
    pub last: E,
}

impl<E: Failure + 'static> Failure for Exhausted<E> {
    fn code(&self) -> &'static str {
        self.last.code()
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }

    fn effect(&self) -> Effect {
        self.last.effect()
    }

    fn elsewhere(&self) -> bool {
        self.last.elsewhere()
    }

    fn counts_against(&self) -> bool {
        self.last.counts_against()
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        self.last.hint()
    }
}

/// An error that a retry layer can wrap in [`Exhausted`] where it stands.
pub trait GiveUp: Failure + From<Exhausted<Self>> + 'static {
    /// Returns any cheap value; it stands in for the error while that is being wrapped.
    fn stand_in() -> Self;

    /// Wraps the error in [`Exhausted`].
    fn give_up(&mut self, attempts: u32, elapsed: Duration) {
        let last = std::mem::replace(self, Self::stand_in());
        *self = Exhausted { attempts, elapsed, last }.into();
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

/// Says that an attempt was cut off by the timeout of the layer around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ThisError)]
#[error("timed out after {}", Seconds(*after))]
pub struct TimedOut {
    /// The limit that was reached.
    pub after: Duration,
}

/// Says that a circuit breaker refused a call without making it.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error("circuit is open for {}", Seconds(*retry_after))]
#[non_exhaustive]
pub struct CircuitOpen {
    /// When the next probe is let through.
    pub retry_after: Duration,
    /// What the last call that was made failed with, in this run or in another one.
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
