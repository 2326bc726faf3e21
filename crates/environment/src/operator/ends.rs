//! How an operator ends that is not waited for any longer.

use std::error::Error;
use std::fmt;

use layer0::code;
use layer0::failure::{Effect, Facts, Failure};

/// The deadline of an operator has passed.
///
/// Retry: never. Effect: unknown, none where it was not begun.
#[derive(Debug)]
pub(super) struct OutOfTime {
    operator: String,
    has_begun: bool,
}

impl OutOfTime {
    pub(super) fn begun(operator: &str) -> Self {
        Self { operator: operator.to_owned(), has_begun: true }
    }

    pub(super) fn unbegun(operator: &str) -> Self {
        Self { operator: operator.to_owned(), has_begun: false }
    }
}

impl fmt::Display for OutOfTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.has_begun { "did not end in time" } else { "was too late to begin" };
        write!(f, "`{}` {what}", self.operator)
    }
}

impl Error for OutOfTime {}

impl Failure for OutOfTime {
    fn facts(&self) -> Facts {
        let effect = if self.has_begun { Effect::Unknown } else { Effect::None };
        Facts::never(code::BUDGET_WALL_TIME, effect)
    }
}
