//! Why a decision was not accepted.

use event_log::LogError;
use layer0::code;
use layer0::failure::{Effect, Failure, Retry};
use layer0::id::ApprovalId;
use thiserror::Error;

/// Says that no open approval has this id: it never had, or it is decided already.
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
    fn code(&self) -> &'static str {
        code::INPUT_INVALID
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }

    fn effect(&self) -> Effect {
        Effect::None
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
    /// Retry: never. Effect: none.
    #[error("the decision was not accepted")]
    NotFound(#[from] ApprovalNotFound),
    /// The log could not be written.
    ///
    /// Retry: as the log's error says. Effect: as the log's error says.
    #[error("the decision could not be written")]
    Log(#[from] LogError),
}

impl Failure for DecideError {
    fn code(&self) -> &'static str {
        match self {
            Self::Blank(_) => code::INPUT_INVALID,
            Self::NotFound(error) => error.code(),
            Self::Log(error) => error.code(),
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Blank(_) => Retry::Never,
            Self::NotFound(error) => error.retry(),
            Self::Log(error) => error.retry(),
        }
    }

    fn effect(&self) -> Effect {
        match self {
            Self::Blank(_) => Effect::None,
            Self::NotFound(error) => error.effect(),
            Self::Log(error) => error.effect(),
        }
    }
}
