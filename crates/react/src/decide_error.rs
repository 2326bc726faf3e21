//! Why a decision was not accepted.

use event_log::LogError;
use layer0::code;
use layer0::failure::{Effect, Facts, Failure};
use layer0::id::ApprovalId;
use thiserror::Error;

/// Says that no open approval has this id: it never had, or it is decided already.
///
/// Retry: never. Effect: none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no open approval `{id}`")]
#[non_exhaustive]
pub struct ApprovalNotFound {
    /// The id.
    pub id: ApprovalId,
}

impl ApprovalNotFound {
    /// Makes the error.
    #[must_use]
    pub const fn new(id: ApprovalId) -> Self {
        Self { id }
    }
}

impl Failure for ApprovalNotFound {
    fn facts(&self) -> Facts {
        Facts::never(code::INPUT_INVALID, Effect::None)
    }
}

/// Says why a decision was not accepted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DecideError {
    /// A text that has to say something is blank.
    ///
    /// Retry: never. Effect: none.
    #[error("the decision has a blank `{0}`")]
    Blank(&'static str),
    /// No such approval is open.
    ///
    /// Retry: as the error inside says. Effect: as it says.
    #[error("the decision was not accepted")]
    NotFound(#[from] ApprovalNotFound),
    /// The log could not be written.
    ///
    /// Retry: as the log's error says. Effect: as the log's error says.
    #[error("the decision could not be written")]
    Log(#[from] LogError),
}

impl Failure for DecideError {
    fn facts(&self) -> Facts {
        match self {
            Self::Blank(_) => Facts::never(code::INPUT_INVALID, Effect::None),
            Self::NotFound(error) => error.facts(),
            Self::Log(error) => error.facts(),
        }
    }
}
