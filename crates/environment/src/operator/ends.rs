//! Ends of an operator that nothing waits for any longer.

use std::error::Error;
use std::fmt;

use layer0::code;
use layer0::failure::{Effect, Facts, Failure};

/// A passed deadline of an operator.
#[derive(Debug)]
pub(super) enum DeadlinePassed {
    /// The operator was running.
    ///
    /// Retry: never. Effect: unknown.
    Begun(String),
    /// The deadline had passed before the operator began.
    ///
    /// Retry: never. Effect: none.
    Unbegun(String),
}

impl DeadlinePassed {
    pub(super) fn after_start(operator: &str) -> Self {
        Self::Begun(operator.to_owned())
    }

    pub(super) fn before_start(operator: &str) -> Self {
        Self::Unbegun(operator.to_owned())
    }
}

impl fmt::Display for DeadlinePassed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begun(operator) => write!(f, "`{operator}` did not end in time"),
            Self::Unbegun(operator) => write!(f, "`{operator}` was too late to begin"),
        }
    }
}

impl Error for DeadlinePassed {}

impl Failure for DeadlinePassed {
    fn facts(&self) -> Facts {
        match self {
            Self::Begun(_) => Facts::never(code::BUDGET_WALL_TIME, Effect::Unknown),
            Self::Unbegun(_) => Facts::never(code::BUDGET_WALL_TIME, Effect::None),
        }
    }
}
