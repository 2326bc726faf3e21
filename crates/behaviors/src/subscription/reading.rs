//! State of a subscription's reads.

use std::future::pending;

use backstop_clock::BoxFuture;
use backstop_event_log::{Feed, FeedRecord, LogError};

/// The result of a wait for the next event.
pub(super) enum NextRead {
    Event(Result<Option<FeedRecord>, LogError>),
    /// There may be more to read.
    Resumed,
}

/// State of the reads.
pub(super) enum ReadState {
    /// The end of the log was reached.
    AtEnd,
    /// No read can succeed. Deliveries in progress end before the subscription is released.
    Failed(LogError),
    Open,
    /// A read failed, and is repeated after this wait. Deliveries in progress continue.
    Paused(BoxFuture),
}

impl ReadState {
    /// Pauses after a failed read if another read can succeed.
    pub(super) fn after(error: LogError, pause: impl FnOnce() -> BoxFuture) -> Self {
        match error.is_retryable() {
            true => Self::Paused(pause()),
            false => Self::Failed(error),
        }
    }

    pub(super) const fn has_failed(&self) -> bool {
        matches!(self, Self::Failed(_))
    }

    /// Takes the error that makes every further read fail.
    pub(super) fn take_failure(&mut self) -> Option<LogError> {
        match std::mem::replace(self, Self::Open) {
            Self::Failed(error) => Some(error),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Reads the next event. Dropping the future loses nothing.
    pub(super) async fn next(&mut self, feed: &mut Feed) -> NextRead {
        match self {
            Self::Open => NextRead::Event(feed.try_next().await),
            Self::AtEnd => {
                feed.wait_for_change().await;
                NextRead::Resumed
            }
            Self::Paused(pause) => {
                pause.as_mut().await;
                NextRead::Resumed
            }
            Self::Failed(_) => pending().await,
        }
    }
}
