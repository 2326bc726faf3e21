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
    /// The back end failed in a way that no other variant describes.
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
    /// A name or a text is too long for the back end. Nothing was written.
    ///
    /// Retry: never. Effect: none.
    #[error("too large for the store")]
    TooLarge(#[source] BoxError),
    /// The back end cannot be reached, or disconnected before it answered.
    ///
    /// Retry: with backoff. Effect: unknown.
    #[error("store cannot be reached")]
    Unreachable(#[source] BoxError),
}

impl StoreError {
    /// Returns whether another attempt now, with backoff, can help.
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

impl From<LogError> for StoreError {
    /// Keeps the kind of a failure of the back end; whatever else a log refuses is the source of a failure.
    fn from(error: LogError) -> Self {
        match error {
            LogError::Closed => Self::Closed,
            LogError::Failed(source) => Self::Failed(source),
            LogError::Full(source) => Self::Full(source),
            LogError::Locked(source) => Self::Locked(source),
            LogError::StoreLost(path) => Self::Lost(path),
            LogError::TooLarge(source) => Self::TooLarge(source),
            LogError::Unreachable(source) => Self::Unreachable(source),
            other => Self::Failed(other.into()),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: E2. A failure of the back end says the same wherever it is met.
    #[test]
    fn kind_of_a_failure_is_kept() {
        let errors = [
            LogError::Closed,
            LogError::Failed("failed".into()),
            LogError::Full("full".into()),
            LogError::Locked("locked".into()),
            LogError::StoreLost("x.db".into()),
            LogError::TooLarge("too large".into()),
            LogError::Unreachable("unreachable".into()),
        ];
        for error in errors {
            let (facts, said) = (error.facts(), error.to_string());
            let stored = StoreError::from(error);
            assert_eq!(stored.facts(), facts, "{said}");
            assert_eq!(LogError::from(stored).facts(), facts, "{said}");
        }
        let other = StoreError::from(LogError::key_missing("k"));
        let StoreError::Failed(source) = other else { panic!("{other:?}") };
        assert!(matches!(source.downcast_ref(), Some(LogError::KeyMissing { .. })));
    }
}
