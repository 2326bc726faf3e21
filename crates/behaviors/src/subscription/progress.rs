//! How far subscriptions are, for those that wait for them.

use std::collections::{BTreeSet, VecDeque};

use backstop_event_log::Cursor;
use layer0::id::RunId;
use tokio::sync::watch;

/// How many of the last failures are kept for those that wait for what follows from them.
const MAX_FAILURES: usize = 1_024;

/// An event of a record: the run or segment, and the event's number in it.
pub(crate) type EventId = (RunId, u64);

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

/// Where a subscription stands.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) progress: Progress,
    /// The number up to which the log was read.
    read: u64,
    /// What was read, is to be delivered, and has no end that is durable.
    open: BTreeSet<EventId>,
    /// Deliveries that failed here lately: of which event, and the event that says so.
    failures: VecDeque<Failed>,
}

/// A failure that is durable.
#[derive(Debug, Clone)]
pub(crate) struct Failed {
    pub(crate) of: EventId,
    pub(crate) recorded: EventId,
}

impl Standing {
    /// Have those of the events up to a number ended that `is_own` picks? What another host has is not waited for.
    pub(crate) fn has_ended(&self, until: u64, is_own: impl Fn(&EventId) -> bool) -> bool {
        match self.progress {
            Progress::Waiting | Progress::Stopped => true,
            Progress::Starting => false,
            Progress::Busy | Progress::Behind(_) => {
                self.read >= until && !self.open.iter().any(is_own)
            }
        }
    }

    pub(crate) fn failures(&self) -> impl Iterator<Item = &Failed> {
        self.failures.iter()
    }
}

pub(crate) struct Progressing(watch::Sender<Standing>);

impl Progressing {
    pub(crate) fn new() -> (Self, watch::Receiver<Standing>) {
        let (sender, receiver) = watch::channel(Standing {
            progress: Progress::Starting,
            read: 0,
            open: BTreeSet::new(),
            failures: VecDeque::new(),
        });
        (Self(sender), receiver)
    }

    pub(crate) fn set(&self, progress: Progress) {
        self.0.send_if_modified(|standing| {
            let is_other = standing.progress != progress;
            standing.progress = progress;
            is_other
        });
    }

    /// Notes that it is read from here on, and that nothing of it is open yet.
    pub(crate) fn begin(&self, from: Cursor) {
        self.0.send_modify(|standing| {
            standing.read = from.number().unwrap_or_default();
            standing.open.clear();
        });
    }

    /// Notes an event that is to be delivered, before it is said that the log was read up to there.
    pub(crate) fn open(&self, event: EventId) {
        self.0.send_if_modified(|standing| standing.open.insert(event));
    }

    /// Notes how far the log was read.
    pub(crate) fn read(&self, cursor: Cursor) {
        let read = cursor.number().unwrap_or_default();
        self.0.send_if_modified(|standing| std::mem::replace(&mut standing.read, read) != read);
    }

    /// Notes what has ended so that it lasts, and the failures among the ends.
    pub(crate) fn end(
        &self,
        ended: impl IntoIterator<Item = EventId>,
        failures: impl IntoIterator<Item = Failed>,
    ) {
        self.0.send_modify(|standing| {
            standing.failures.extend(failures);
            let surplus = standing.failures.len().saturating_sub(MAX_FAILURES);
            drop(standing.failures.drain(..surplus));
            for event in ended {
                standing.open.remove(&event);
            }
        });
    }
}
