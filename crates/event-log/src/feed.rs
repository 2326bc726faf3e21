//! Types for following a log: pages of events, and a watch for more.

use std::task::{Context, Poll};

use layer0::id::RunId;

use crate::watches::{KeyedWatches, Watch};
use crate::{Cursor, Record};

/// An event from a [`Feed`](crate::Feed).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeedRecord {
    /// The run of the event.
    pub run: RunId,
    /// The event.
    pub record: Record,
    /// The position after the event.
    pub cursor: Cursor,
}

impl FeedRecord {
    /// Creates a feed record.
    #[must_use]
    pub const fn new(run: RunId, record: Record, cursor: Cursor) -> Self {
        Self { run, record, cursor }
    }
}

/// A page of events after a cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeedPage {
    /// The events that match the filter, in the order of appends.
    pub records: Vec<FeedRecord>,
    /// The position after all events that were read, matching or not.
    pub cursor: Cursor,
    /// Whether there were no further events when the page was read.
    pub is_end: bool,
}

impl FeedPage {
    /// Maximum number of events in a page.
    pub const MAX_RECORDS: usize = 256;
    /// Maximum bytes of payload in a page; the last event may exceed it.
    pub const MAX_BYTES: usize = 1 << 20;
    /// Maximum number of events read for a page, so that a page with few matches is not expensive either.
    pub const MAX_LOOKED_AT: usize = 8_192;

    /// Creates a page.
    #[must_use]
    pub const fn new(records: Vec<FeedRecord>, cursor: Cursor, is_end: bool) -> Self {
        Self { records, cursor, is_end }
    }
}

/// Wakes the followers of a log after an append. Clones share the watches.
#[derive(Debug, Clone, Default)]
pub struct EventWatches(KeyedWatches<()>);

impl EventWatches {
    /// Watches for events. Earlier events count as new.
    #[must_use]
    pub fn watch(&self) -> EventWatch {
        EventWatch(self.0.watch(&()))
    }

    /// Wakes the watches, because there may be more events.
    pub fn ring(&self) {
        self.0.ring(&());
    }

    /// Returns whether there is no watch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A watch for appended events, active until dropped.
#[derive(Debug)]
pub struct EventWatch(Watch<()>);

impl EventWatch {
    /// Returns ready when there may be new events; the first time at once.
    pub fn poll_changed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_changed(cx)
    }

    /// Waits until there may be new events; returns at once the first time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: a change is taken only when it returns.
    pub async fn wait_for_change(&mut self) {
        std::future::poll_fn(|cx| self.poll_changed(cx)).await;
    }
}
