//! The error for a workflow that does not match its record.

use std::borrow::Cow;

use layer0::code;
use layer0::error::{OperatorError, OrchError};
use layer0::failure::{Effect, Facts, Failure};
use thiserror::Error;

/// A difference between a workflow and its record.
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the workflow is another one than was recorded: {place}: expected {expected}, found {actual}"
)]
#[non_exhaustive]
pub struct Diverged {
    /// The event if the record contradicts itself; otherwise the path of the step.
    pub place: DivergencePoint,
    /// The value in the record.
    pub expected: String,
    /// The value found instead.
    pub actual: String,
}

/// The place at which a workflow and its record differ.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DivergencePoint {
    /// An event of the record.
    #[error("event {0}")]
    Event(u64),
    /// A step.
    #[error("step `{0}`")]
    Step(String),
}

impl Diverged {
    pub(super) fn of_record(
        seq: u64,
        expected: impl Into<String>,
        actual: impl Into<String>,
    ) -> Self {
        Self {
            place: DivergencePoint::Event(seq),
            expected: expected.into(),
            actual: actual.into(),
        }
    }

    pub(super) fn at_step(
        path: &str,
        expected: impl Into<String>,
        actual: impl Into<String>,
    ) -> Self {
        let place = DivergencePoint::Step(path.to_owned());
        Self { place, expected: expected.into(), actual: actual.into() }
    }
}

impl Failure for Diverged {
    fn facts(&self) -> Facts {
        Facts::never(code::REPLAY_DIVERGED, Effect::None)
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        let hint = match self.place {
            DivergencePoint::Event(_) => "the record was changed, or written by something else",
            DivergencePoint::Step(_) => {
                "resume it with the code that began it, or begin anew; what it did is recorded as it was"
            }
        };
        Some(hint.into())
    }
}

impl From<Diverged> for OperatorError {
    fn from(diverged: Diverged) -> Self {
        Self::from_failure(diverged)
    }
}

impl From<Diverged> for OrchError {
    fn from(diverged: Diverged) -> Self {
        OperatorError::from(diverged).into()
    }
}
