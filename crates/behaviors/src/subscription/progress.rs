//! How far subscriptions are, for those that wait for them.

use backstop_event_log::Cursor;
use tokio::sync::watch;

/// How far a subscription is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It was not tried to take it yet.
    Starting,
    /// Another host has it, or the log fails.
    Waiting,
    /// Something is delivered, or to be.
    Busy,
    /// All that stands before this has ended.
    Behind(Cursor),
    Stopped,
}

impl Progress {
    /// Has all ended here that stands before a number? What another host has is not waited for.
    pub(crate) fn is_behind(self, number: u64) -> bool {
        match self {
            Self::Waiting | Self::Stopped => true,
            Self::Starting | Self::Busy => false,
            Self::Behind(cursor) => cursor.number().is_some_and(|at| at >= number),
        }
    }
}

pub(crate) struct Progressing(watch::Sender<Progress>);

impl Progressing {
    pub(crate) fn new() -> (Self, watch::Receiver<Progress>) {
        let (sender, receiver) = watch::channel(Progress::Starting);
        (Self(sender), receiver)
    }

    pub(crate) fn set(&self, progress: Progress) {
        self.0.send_if_modified(|before| {
            let is_other = *before != progress;
            *before = progress;
            is_other
        });
    }
}
