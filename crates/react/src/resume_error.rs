//! Why a run cannot be gone on with.

use backstop_event_log::LogError;
use backstop_react_machine::Divergence;
use layer0::code;
use layer0::failure::{Effect, Facts, Failure};
use layer0::id::RunId;
use thiserror::Error;

use crate::error::RunFailure;

/// Says why a run cannot be gone on with, copied or replayed, or how it failed then.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// A text that has to say something is blank.
    ///
    /// Retry: never. Effect: none.
    #[error("the request has a blank `{0}`")]
    Blank(&'static str),
    /// What is recorded does not follow from this agent, or was recorded by another version.
    ///
    /// Retry: as the divergence says. Effect: as it says.
    #[error("the record is not this agent's")]
    Diverged(#[source] Box<Divergence>),
    /// The copy is over where it ends, so its model would never read what was to be said to it.
    ///
    /// Retry: never. Effect: none.
    #[error("the copy of run `{run}` is over at event {at}: no model would read the input")]
    #[non_exhaustive]
    CopyOver {
        /// The run that was to be copied.
        run: RunId,
        /// The last event that was to be copied.
        at: u64,
    },
    /// The record cannot be read, or another process is writing it.
    ///
    /// Retry: as the log's error says. Effect: as the log's error says.
    #[error("the run cannot be taken over")]
    Log(#[from] LogError),
    /// The run has no such event.
    ///
    /// Retry: never. Effect: none.
    #[error("run `{run}` has no event {seq}, its last one is {last}")]
    #[non_exhaustive]
    NoSuchEvent {
        /// The run.
        run: RunId,
        /// The event.
        seq: u64,
        /// The run's last event.
        last: u64,
    },
    /// The run went on and failed, or had failed before.
    ///
    /// Retry: as the failure says. Effect: as the failure says.
    #[error("agent failed")]
    Run(#[source] Box<RunFailure>),
}

impl ResumeError {
    pub(crate) const fn copy_over(run: RunId, at: u64) -> Self {
        Self::CopyOver { run, at }
    }

    pub(crate) const fn no_such_event(run: RunId, seq: u64, last: u64) -> Self {
        Self::NoSuchEvent { run, seq, last }
    }
}

impl From<Divergence> for ResumeError {
    fn from(divergence: Divergence) -> Self {
        Self::Diverged(Box::new(divergence))
    }
}

impl From<RunFailure> for ResumeError {
    fn from(failure: RunFailure) -> Self {
        Self::Run(Box::new(failure))
    }
}

impl Failure for ResumeError {
    fn facts(&self) -> Facts {
        match self {
            Self::Blank(_) | Self::CopyOver { .. } | Self::NoSuchEvent { .. } => {
                Facts::never(code::INPUT_INVALID, Effect::None)
            }
            Self::Diverged(divergence) => divergence.facts(),
            Self::Log(error) => error.facts(),
            Self::Run(failure) => failure.facts(),
        }
    }
}
