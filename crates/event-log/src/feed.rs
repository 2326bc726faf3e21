//! Following what is appended to a log, by whichever process.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use layer0::id::RunId;

use crate::watches::{Watch, Watches};
use crate::{Cursor, EventFilter, EventLog, LogError, Record};

/// An event that a feed brings.
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

/// Follows a log: what stands behind a cursor, and then each event as it is appended, by whichever
/// process.
///
/// No event is left out or comes twice, and those of a run come in the order of their seq. What was
/// taken away with its run before it was read does not come. A row that another program changed, so
/// that it is no event any more, does not come either and is warned of;
/// [`verify_run`](crate::verify_run) names it.
///
/// ```
/// use std::sync::Arc;
///
/// use backstop_event_log::{Cursor, EventFilter, EventLog, MemoryLog, RunWriter, Seed, follow};
/// use layer0::Timestamp;
/// use layer0::event::{Actor, Warning};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), backstop_event_log::LogError> {
/// let log: Arc<dyn EventLog> = Arc::new(MemoryLog::new());
/// let filter = EventFilter::new().run("run_1").event_type("warning");
/// let mut feed = follow(Arc::clone(&log), filter, Cursor::now()).await?;
///
/// let mut writer = RunWriter::new(log, "run_1".into());
/// let warning = Warning { message: "the disk is nearly full".into() };
/// writer.stage(&Seed::new("s"), Timestamp::default(), Actor::Runtime, None, warning.into());
/// writer.commit().await?;
///
/// let next = feed.next().await?;
/// assert_eq!((next.run.as_str(), next.record.seq), ("run_1", 1));
/// // Kept, it is where a later feed goes on.
/// let cursor = feed.cursor().to_string();
/// # let _ = cursor;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`LogError::ForeignCursor`] for a cursor that is not of this log, and what the log fails with.
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
pub async fn follow(
    log: Arc<dyn EventLog>,
    filter: EventFilter,
    cursor: Cursor,
) -> Result<Feed, LogError> {
    // Watched before it is read: what is appended in between rings.
    let watch = log.watch_events();
    let page = log.read_feed(&filter, &cursor).await?;
    let mut feed = Feed {
        log,
        filter,
        watch,
        read: VecDeque::new(),
        given: cursor,
        read_to: cursor,
        is_end: false,
    };
    // Now is the moment of this call.
    feed.given = if cursor == Cursor::now() { page.cursor } else { cursor };
    feed.take(page);
    Ok(feed)
}

/// Events of a log as they are appended; made by [`follow`].
pub struct Feed {
    log: Arc<dyn EventLog>,
    filter: EventFilter,
    watch: EventWatch,
    /// What was read and not given yet.
    read: VecDeque<FeedRecord>,
    /// Behind what was given.
    given: Cursor,
    /// Behind what was read.
    read_to: Cursor,
    /// Is it to wait before it reads on?
    is_end: bool,
}

impl Feed {
    /// Returns the next event, once there is one.
    ///
    /// # Errors
    ///
    /// What the log fails with. Asked again, it goes on where it was.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Result<FeedRecord, LogError> {
        loop {
            if let Some(next) = self.read.pop_front() {
                self.given = next.cursor;
                return Ok(next);
            }
            self.given = self.read_to;
            if self.is_end {
                self.watch.changed().await;
                // From here on it reads, also when it is dropped before it has.
                self.is_end = false;
            }
            let page = self.log.read_feed(&self.filter, &self.read_to).await?;
            self.take(page);
        }
    }

    /// Returns the place behind the event that was given last, from which another feed of the same
    /// filter goes on.
    #[must_use]
    pub const fn cursor(&self) -> Cursor {
        self.given
    }

    fn take(&mut self, page: FeedPage) {
        self.read.extend(page.records);
        (self.read_to, self.is_end) = (page.cursor, page.is_end);
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { filter, given, .. } = self;
        f.debug_struct("Feed")
            .field("filter", filter)
            .field("cursor", given)
            .finish_non_exhaustive()
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
