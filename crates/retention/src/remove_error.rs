use backstop_error_store::StoreError;
use layer0::code;
use layer0::failure::{Effect, Facts, Failure};
use layer0::id::{RunId, SessionId};
use thiserror::Error;

/// Error of a run or session that was not removed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RemoveError {
    /// The caller of the run is kept.
    ///
    /// Retry: never. Effect: none.
    #[error("run `{run}` was dispatched by `{caller}`")]
    #[non_exhaustive]
    Dispatched {
        /// The run.
        run: RunId,
        /// The run that dispatched it.
        caller: RunId,
    },
    /// A run that continues this run is kept.
    ///
    /// Retry: never. Effect: none.
    #[error("run `{run}` is followed by `{by}`")]
    #[non_exhaustive]
    Followed {
        /// The run.
        run: RunId,
        /// The run that continues it.
        by: RunId,
    },
    /// The run does not exist.
    ///
    /// Retry: never. Effect: none.
    #[error("no run `{0}`")]
    NoRun(RunId),
    /// The session does not exist.
    ///
    /// Retry: never. Effect: none.
    #[error("no session `{0}`")]
    NoSession(SessionId),
    /// A run has not ended.
    ///
    /// Retry: with backoff. Effect: none.
    #[error("run `{0}` is open")]
    Open(RunId),
    /// The store failed; runs removed before the failure stay removed.
    ///
    /// Retry: as the store's error says. Effect: unknown.
    #[error("the store failed")]
    Store(#[from] StoreError),
}

impl Failure for RemoveError {
    fn facts(&self) -> Facts {
        match self {
            Self::Dispatched { .. } | Self::Followed { .. } | Self::NoSession(_) => {
                Facts::never(code::INPUT_INVALID, Effect::None)
            }
            Self::NoRun(_) => Facts::never(code::RUN_NOT_FOUND, Effect::None),
            Self::Open(_) => Facts::backoff(code::RUN_OPEN, Effect::None),
            Self::Store(error) => Facts::new(error.code(), error.retry(), Effect::Unknown),
        }
    }
}
