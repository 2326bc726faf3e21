use std::borrow::Cow;

use backstop_event_log::{LogError, StartDifference};
use layer0::code;
use layer0::failure::{Effect, Facts, Failure};
use thiserror::Error;

use crate::fault::Fault;
use crate::transact::Transient;

/// Error of a run that was not enqueued.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The request is invalid: a name, a key, a time or a size.
    ///
    /// Retry: never. Effect: none.
    #[error("cannot be put into the queue: {0}")]
    Invalid(String),
    /// The key belongs to another input, another session or other labels.
    ///
    /// Retry: never. Effect: none.
    #[error("key `{key}` of `{agent}` stands for {differs} already")]
    #[non_exhaustive]
    KeyReused {
        /// The agent.
        agent: String,
        /// The key.
        key: String,
        /// The part of the request that differs from the earlier request with this key.
        differs: StartDifference,
    },
    /// The database failed.
    ///
    /// Retry: as the log's error says. Effect: as the log's error says.
    #[error("the queue cannot be written")]
    Log(#[from] LogError),
}

impl Failure for QueueError {
    fn facts(&self) -> Facts {
        match self {
            Self::Invalid(_) => Facts::never(code::INPUT_INVALID, Effect::None),
            Self::KeyReused { .. } => Facts::never(code::INPUT_KEY_REUSED, Effect::None),
            Self::Log(error) => error.facts(),
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Log(error) => error.hint(),
            Self::Invalid(_) | Self::KeyReused { .. } => None,
        }
    }
}

impl From<Fault> for QueueError {
    fn from(fault: Fault) -> Self {
        Self::Log(fault.into())
    }
}

impl Transient for QueueError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Log(error) if error.is_transient())
    }
}
