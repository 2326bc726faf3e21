//! What logs give to those that follow them: pages of events, and a watch for more.

use std::task::{Context, Poll};

use layer0::id::RunId;

use crate::watches::{Watch, Watches};
use crate::{Cursor, Record};

/// An event that a [`Feed`](crate::Feed) brings.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeedRecord {
    /// The run that it is of.
    pub run: RunId,
    /// The event.
    pub record: Record,
    /// The place behind it.
    pub cursor: Cursor,
}

impl FeedRecord {
    /// Makes a record.
    #[must_use]
    pub const fn new(run: RunId, record: Record, cursor: Cursor) -> Self {
        Self { run, record, cursor }
    }
}

/// Some of the events behind a cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeedPage {
    /// The events that the filter lets through, in the order in which they were appended.
    pub records: Vec<FeedRecord>,
    /// The place behind all that was looked at, let through or not.
    pub cursor: Cursor,
    /// Was there nothing behind that when it was read?
    pub is_end: bool,
}

impl FeedPage {
    /// How many events a page has at most.
    pub const MAX_RECORDS: usize = 256;
    /// How many bytes of payload a page has at most, but for its last event.
    pub const MAX_BYTES: usize = 1 << 20;
    /// How many events are looked at for one page at most, so that one with few of them is no long
    /// work either.
    pub const MAX_LOOKED_AT: usize = 8_192;

    /// Makes a page.
    #[must_use]
    pub const fn new(records: Vec<FeedRecord>, cursor: Cursor, is_end: bool) -> Self {
        Self { records, cursor, is_end }
    }
}

/// Wakes those that follow a log; the log rings when events were appended. Clones share the watches.
#[derive(Debug, Clone, Default)]
pub struct EventWatches(Watches<()>);

impl EventWatches {
    /// Watches for events. What was there before counts as new.
    #[must_use]
    pub fn watch(&self) -> EventWatch {
        EventWatch(self.0.watch(&()))
    }

    /// Says that there may be more events.
    pub fn ring(&self) {
        self.0.ring(&());
    }

    /// Is nothing watched?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A watch for events that are appended to a log, until it is dropped.
#[derive(Debug)]
pub struct EventWatch(Watch<()>);

impl EventWatch {
    /// Is ready when there may be events that were not there before; the first time at once.
    pub fn poll_changed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_changed(cx)
    }

    /// Waits until there may be events that were not there before; returns at once the first time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: it only returns after it took the change in.
    pub async fn changed(&mut self) {
        std::future::poll_fn(|cx| self.poll_changed(cx)).await;
    }
}
