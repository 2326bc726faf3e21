//! Follows events as any process appends them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::{Cursor, EventFilter, EventLog, EventWatch, FeedPage, FeedRecord, LogError};

/// Follows a log: returns the events after a cursor, and then each event as any process appends it.
///
/// No event is skipped or repeated, and the events of a run are in the order of their seq. Events of a run that is
/// removed before they are read are missing. A row that another program changed, so that it is not an event any more,
/// is skipped with a warning; [`verify_run`](crate::verify_run) names it.
///
/// A feed has no end: it waits for further events after `run.finished` too, because a run can be reopened, and for a run
/// that does not exist yet. It has events alone; the pieces of an answer that is being written are not among them.
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
/// let warning = Warning::new("the disk is nearly full");
/// writer.stage(&Seed::new("s"), Timestamp::default(), Actor::Runtime, None, warning.into());
/// writer.commit().await?;
///
/// let next = feed.next().await?;
/// assert_eq!((next.run.as_str(), next.record.seq), ("run_1", 1));
/// // StoredRun, it is where a later feed goes on.
/// let cursor = feed.cursor().to_string();
/// # let _ = cursor;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`LogError::ForeignCursor`] for a cursor of another log, and any error of the log.
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
pub async fn follow(
    log: Arc<dyn EventLog>,
    filter: EventFilter,
    cursor: Cursor,
) -> Result<Feed, LogError> {
    // The watch starts before the read, so that an append in between wakes it.
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
    // `now` is the time of this call.
    feed.given = if cursor == Cursor::now() { page.cursor } else { cursor };
    feed.take(page);
    Ok(feed)
}

/// A feed of a log's events; created by [`follow`].
pub struct Feed {
    log: Arc<dyn EventLog>,
    filter: EventFilter,
    watch: EventWatch,
    /// Events read and not returned yet.
    read: VecDeque<FeedRecord>,
    /// The position after the last returned event.
    given: Cursor,
    /// The position after the last event read.
    read_to: Cursor,
    /// Whether to wait before the next read.
    is_end: bool,
}

impl Feed {
    /// Returns the next event, once there is one.
    ///
    /// # Errors
    ///
    /// Any error of the log. The next call continues at the same position.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Result<FeedRecord, LogError> {
        loop {
            if let Some(next) = self.try_next().await? {
                return Ok(next);
            }
            self.wait_for_change().await;
        }
    }

    /// Returns the next event; `None` at the end, where [`Feed::cursor`] is after all events of the log.
    ///
    /// # Errors
    ///
    /// As [`Feed::next`].
    ///
    /// # Cancel safety
    ///
    /// As [`Feed::next`].
    pub async fn try_next(&mut self) -> Result<Option<FeedRecord>, LogError> {
        loop {
            if let Some(next) = self.read.pop_front() {
                self.given = next.cursor;
                return Ok(Some(next));
            }
            self.given = self.read_to;
            if self.is_end {
                return Ok(None);
            }
            let page = self.log.read_feed(&self.filter, &self.read_to).await?;
            self.take(page);
        }
    }

    /// At the end, waits until there may be more events.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn wait_for_change(&mut self) {
        if self.is_end {
            self.watch.wait_for_change().await;
            // The next call reads, also if this future is dropped before it has read.
            self.is_end = false;
        }
    }

    /// Returns the position after the last returned event, from which another feed with the same filter can continue.
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
