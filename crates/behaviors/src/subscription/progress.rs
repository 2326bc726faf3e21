//! Progress of subscriptions, for callers that wait for deliveries.

use std::collections::{BTreeSet, VecDeque};

use backstop_event_log::Cursor;
use layer0::id::RunId;
use tokio::sync::watch;

/// Number of recent failures kept for callers that wait for their deliveries.
const MAX_FAILURES: usize = 1_024;

/// Id of an event: the run or segment, and the event's number in it.
pub(crate) type EventId = (RunId, u64);

/// Progress of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubscriptionProgress {
    /// No attempt was made yet to claim it.
    Starting,
    /// Another host has it, or the log fails.
    Waiting,
    /// Deliveries are in progress or pending.
    Busy,
    /// All events before this position have ended.
    Behind(Cursor),
    Stopped,
}

impl SubscriptionProgress {
    /// Returns whether all events up to a number have ended here; `true` if another host has the subscription.
    pub(crate) fn is_behind(self, number: u64) -> bool {
        match self {
            Self::Waiting | Self::Stopped => true,
            Self::Starting | Self::Busy => false,
            Self::Behind(cursor) => cursor.number().is_some_and(|at| at >= number),
        }
    }
}

/// Detailed progress of a subscription.
#[derive(Debug)]
pub(crate) struct SubscriptionStatus {
    pub(crate) progress: SubscriptionProgress,
    /// Number up to which the log was read.
    read: u64,
    /// Events to deliver without a durable end.
    open: BTreeSet<EventId>,
    /// Recent failed deliveries, each with the event that records the failure.
    failures: VecDeque<DeliveryFailure>,
}

/// A durably recorded failure.
#[derive(Debug, Clone)]
pub(crate) struct DeliveryFailure {
    pub(crate) of: EventId,
    pub(crate) recorded: EventId,
}

impl SubscriptionStatus {
    /// Returns whether the events up to `until` that `is_own` selects have ended; `true` if another host has the
    /// subscription.
    pub(crate) fn has_ended(&self, until: u64, is_own: impl Fn(&EventId) -> bool) -> bool {
        match self.progress {
            SubscriptionProgress::Waiting | SubscriptionProgress::Stopped => true,
            SubscriptionProgress::Starting => false,
            SubscriptionProgress::Busy | SubscriptionProgress::Behind(_) => {
                self.read >= until && !self.open.iter().any(is_own)
            }
        }
    }

    pub(crate) fn failures(&self) -> impl Iterator<Item = &DeliveryFailure> {
        self.failures.iter()
    }
}

pub(crate) struct StatusSender(watch::Sender<SubscriptionStatus>);

impl StatusSender {
    pub(crate) fn new() -> (Self, watch::Receiver<SubscriptionStatus>) {
        let (sender, receiver) = watch::channel(SubscriptionStatus {
            progress: SubscriptionProgress::Starting,
            read: 0,
            open: BTreeSet::new(),
            failures: VecDeque::new(),
        });
        (Self(sender), receiver)
    }

    pub(crate) fn set(&self, progress: SubscriptionProgress) {
        self.0.send_if_modified(|standing| {
            let is_other = standing.progress != progress;
            standing.progress = progress;
            is_other
        });
    }

    /// Sets the position from which the log is read, without open events.
    pub(crate) fn begin(&self, from: Cursor) {
        self.0.send_modify(|standing| {
            standing.read = from.number().unwrap_or_default();
            standing.open.clear();
        });
    }

    /// Adds an event to deliver; called before the log is reported as read up to it.
    pub(crate) fn open(&self, event: EventId) {
        self.0.send_if_modified(|standing| standing.open.insert(event));
    }

    /// Sets the position up to which the log was read.
    pub(crate) fn read(&self, cursor: Cursor) {
        let read = cursor.number().unwrap_or_default();
        self.0.send_if_modified(|standing| std::mem::replace(&mut standing.read, read) != read);
    }

    /// Removes events whose end is durable, and adds the failures among them.
    pub(crate) fn end(
        &self,
        ended: impl IntoIterator<Item = EventId>,
        failures: impl IntoIterator<Item = DeliveryFailure>,
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
