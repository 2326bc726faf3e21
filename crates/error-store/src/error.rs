use std::borrow::Cow;
use std::path::PathBuf;

use backstop_event_log::LogError;
use layer0::code;
use layer0::error::BoxError;
use layer0::failure::{Effect, Facts, Failure};
use thiserror::Error;

/// The reason an error store could not be written or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store was already closed.
    ///
    /// Retry: never. Effect: none.
    #[error("store is closed")]
    Closed,
    /// The back end failed in a way that has no class of its own.
    ///
    /// Retry: never. Effect: unknown.
    #[error("store failed")]
    Failed(#[source] BoxError),
    /// The disk or the quota is full.
    ///
    /// Retry: never. Effect: none.
    #[error("no space left for the store")]
    Full(#[source] BoxError),
    /// The back end is locked by another process.
    ///
    /// Retry: with backoff. Effect: none.
    #[error("store is locked")]
    Locked(#[source] BoxError),
    /// The file of the store was removed, renamed or replaced while it was open. The file now under its name lacks the
    /// written data.
    ///
    /// Retry: never. Effect: unknown.
    #[error("`{}` is not the file any more that was opened", .0.display())]
    Lost(PathBuf),
    /// It is more than the back end takes: a name or a text is too long. Nothing was written.
    ///
    /// Retry: never. Effect: none.
    #[error("too large for the store")]
    TooLarge(#[source] BoxError),
    /// The back end cannot be reached, or went away before it answered.
    ///
    /// Retry: with backoff. Effect: unknown.
    #[error("store cannot be reached")]
    Unreachable(#[source] BoxError),
}

impl StoreError {
    /// Returns whether trying again can help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        Failure::retry(self).is_retryable()
    }
}

impl From<StoreError> for LogError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Closed => Self::Closed,
            StoreError::Failed(source) => Self::Failed(source),
            StoreError::Full(source) => Self::Full(source),
            StoreError::Locked(source) => Self::Locked(source),
            StoreError::Lost(path) => Self::StoreLost(path),
            StoreError::TooLarge(source) => Self::TooLarge(source),
            StoreError::Unreachable(source) => Self::Unreachable(source),
        }
    }
}

impl Failure for StoreError {
    fn facts(&self) -> Facts {
        match self {
            Self::Closed => Facts::never(code::STORE_CLOSED, Effect::None),
            Self::Failed(_) => Facts::never(code::STORE_FAILED, Effect::Unknown),
            Self::Full(_) => Facts::never(code::STORE_FULL, Effect::None),
            Self::Locked(_) => Facts::backoff(code::STORE_LOCKED, Effect::None),
            Self::Lost(_) => Facts::never(code::STORE_LOST, Effect::Unknown),
            Self::TooLarge(_) => Facts::never(code::STORE_FAILED, Effect::None),
            Self::Unreachable(_) => Facts::backoff(code::STORE_FAILED, Effect::Unknown),
        }
    }

    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Lost(_) => Some(LogError::STORE_LOST_HINT.into()),
            Self::TooLarge(_) => Some("give it a shorter name, or keep less of it".into()),
            _ => None,
        }
    }
}
