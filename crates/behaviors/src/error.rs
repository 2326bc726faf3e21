//! Failures of a behaviour.

use std::any::type_name;
use std::borrow::Cow;
use std::fmt;

use backstop_redact::Redactor;
use layer0::error::BoxError;
use layer0::event::{BehaviorDelivered, BehaviorFailed};
use layer0::failure::{Effect, Facts, Failure, chain, stated_facts};
use layer0::{Code, code, text};
use thiserror::Error;

/// The failure of a behaviour; `?` converts any error with facts.
///
/// Retry: as the failure inside says. Effect: as it says.
pub struct BehaviorError {
    facts: Facts,
    hint: Option<String>,
    exception_type: &'static str,
    source: BoxError,
}

impl BehaviorError {
    /// Wraps an error without facts: its code is `behavior.failed`, and it is not retried.
    pub fn other(error: impl Into<BoxError>) -> Self {
        let facts = Facts::never(code::BEHAVIOR_FAILED, Effect::Unknown);
        Self { facts, hint: None, exception_type: "Error", source: error.into() }
    }

    /// Returns the facts of the failure.
    #[must_use]
    pub const fn facts(&self) -> Facts {
        self.facts
    }

    /// Returns the type name of the error, without its path.
    #[must_use]
    pub const fn exception_type(&self) -> &'static str {
        self.exception_type
    }

    /// Returns a hint for fixing the failure, if known.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns the error and its causes in one line.
    #[must_use]
    pub fn message(&self) -> String {
        chain(&*self.source).join(": ")
    }

    /// Returns the failure of an event that is not delivered.
    pub(crate) fn from_refusal(
        reason: &'static str,
        message: String,
        exception_type: &'static str,
    ) -> Self {
        let facts = Facts::never(reason, Effect::None);
        Self { facts, hint: None, exception_type, source: message.into() }
    }

    /// Returns the event that records the failed delivery.
    pub(crate) fn to_event(
        &self,
        delivered: &BehaviorDelivered,
        attempts: u32,
        redactor: &Redactor,
    ) -> BehaviorFailed {
        let message = self.message();
        let message = text::cut_message(&redactor.redact(&message)).into_owned();
        let code = Code::new(self.facts.code);
        BehaviorFailed::new(delivered, attempts, self.exception_type, code, message)
    }

    pub(crate) fn from_timeout(limit: std::time::Duration) -> Self {
        Ended::Timeout(limit).into()
    }

    pub(crate) fn from_panic(what: String) -> Self {
        Ended::Panicked(what).into()
    }
}

impl<E: Failure + Send + Sync + 'static> From<E> for BehaviorError {
    fn from(error: E) -> Self {
        let name = type_name::<E>();
        let exception_type = name.split('<').next().unwrap_or(name).rsplit("::").next();
        Self {
            facts: stated_facts(&error),
            hint: error.hint().map(Cow::into_owned),
            exception_type: exception_type.unwrap_or(name),
            source: Box::new(error),
        }
    }
}

impl fmt::Display for BehaviorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl fmt::Debug for BehaviorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("BehaviorError");
        debug.field("code", &self.facts.code).field("source", &self.source);
        debug.field("hint", &self.hint).finish()
    }
}

/// The end of an attempt that did not return.
#[derive(Debug, Error)]
enum Ended {
    /// The attempt panicked.
    ///
    /// Retry: never. Effect: unknown.
    #[error("the behaviour panicked: {0}")]
    Panicked(String),
    /// The attempt timed out.
    ///
    /// Retry: with backoff. Effect: unknown.
    #[error("the behaviour did not end in {0:?}")]
    Timeout(std::time::Duration),
}

impl Failure for Ended {
    fn facts(&self) -> Facts {
        match self {
            Self::Panicked(_) => Facts::never(code::BEHAVIOR_PANICKED, Effect::Unknown),
            Self::Timeout(_) => Facts::backoff(code::BEHAVIOR_TIMEOUT, Effect::Unknown),
        }
    }
}
