//! The port of a log that can be followed.

use async_trait::async_trait;

use crate::{Cursor, EventFilter, EventWatch, FeedPage, LogError};

/// Returns the events of all runs in the order of their appends.
#[async_trait]
pub trait EventFeed: Send + Sync {
    /// Reads a page of events after a cursor, of all runs, in the order of appends; [`follow`](crate::follow) reads
    /// further. Costs the same wherever the cursor is.
    ///
    /// # Errors
    ///
    /// [`LogError::ForeignCursor`], and the errors of [`Log::summary`](crate::Log::summary).
    async fn read_feed(&self, filter: &EventFilter, cursor: &Cursor) -> Result<FeedPage, LogError>;

    /// Watches for events that any process appends to any run.
    fn watch_events(&self) -> EventWatch;
}
