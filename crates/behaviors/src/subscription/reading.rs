//! Whether the log is read.

use std::future::pending;
use std::pin::Pin;

use backstop_clock::Clock;
use backstop_event_log::{Feed, LogError};

use super::AGAIN;
use super::held::Happened;

/// How the next event is read.
pub(super) enum Reading {
    /// All that the log holds was read.
    AtEnd,
    /// No read can succeed. What is in progress ends before the subscription is given up.
    Failed(LogError),
    Open,
    /// A read failed, and is repeated after this. What is in progress goes on meanwhile.
    Paused(Pin<Box<dyn Future<Output = ()> + Send>>),
}

impl Reading {
    /// Pauses after a failed read where another one can succeed.
    pub(super) fn after(error: LogError, clock: &dyn Clock) -> Self {
        match error.is_retryable() {
            true => Self::Paused(clock.sleep(AGAIN)),
            false => Self::Failed(error),
        }
    }

    pub(super) const fn has_failed(&self) -> bool {
        matches!(self, Self::Failed(_))
    }

    /// Takes the reason why no read can succeed.
    pub(super) fn take_failure(&mut self) -> Option<LogError> {
        match std::mem::replace(self, Self::Open) {
            Self::Failed(error) => Some(error),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Returns what is read next. A read that is dropped loses nothing.
    pub(super) async fn next(&mut self, feed: &mut Feed) -> Happened {
        match self {
            Self::Open => Happened::Read(feed.try_next().await),
            Self::AtEnd => {
                feed.changed().await;
                Happened::Resumed
            }
            Self::Paused(pause) => {
                pause.as_mut().await;
                Happened::Resumed
            }
            Self::Failed(_) => pending().await,
        }
    }
}
