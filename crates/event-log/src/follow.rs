//! Following what is appended to a log, by whichever process.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::{Cursor, EventFilter, EventLog, EventWatch, FeedPage, FeedRecord, LogError};

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
/// let warning = Warning::new("the disk is nearly full");
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
            if let Some(next) = self.try_next().await? {
                return Ok(next);
            }
            self.changed().await;
        }
    }

    /// Returns the next event; `None` at the end, where [`Feed::cursor`] stands behind all that the log holds.
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

    /// Waits at the end until there may be more.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn changed(&mut self) {
        if self.is_end {
            self.watch.changed().await;
            // From here on it reads, also when it is dropped before it has.
            self.is_end = false;
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
