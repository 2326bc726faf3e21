//! Reasons for which a workflow's run ends, or stops without an end.

use backstop_event_log::LogError;
use layer0::error::OperatorError;
use layer0::operator::Answer;

use super::diverged::Diverged;

/// Reason for which a run stops without an end in its record.
pub(super) enum Halt {
    Storage(LogError),
    Diverged(Diverged),
}

impl From<LogError> for Halt {
    fn from(error: LogError) -> Self {
        Self::Storage(error)
    }
}

impl From<Diverged> for Halt {
    fn from(diverged: Diverged) -> Self {
        Self::Diverged(diverged)
    }
}

impl From<Halt> for OperatorError {
    fn from(end: Halt) -> Self {
        match end {
            Halt::Storage(error) => Self::from_failure(error),
            Halt::Diverged(diverged) => diverged.into(),
        }
    }
}

/// Reason for which a run ends.
pub(super) enum Closing {
    /// Its code has returned.
    Done(Result<Answer, OperatorError>),
    Cancelled,
    /// It has received as many signals as a run records.
    Full,
    /// Its time limit has passed.
    Late,
}
