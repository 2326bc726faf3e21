use backstop_event_log::LogError;

use super::entry::QueueEntry;
use super::values::count;
use crate::fault::Fault;
use crate::pool::ConnectionPool;
use crate::text::encode_text;

/// Filter of runs in the queue.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct QueueFilter {
    /// Only runs of this queue; of all queues if `None`.
    pub queue: Option<String>,
    /// Maximum number of runs; no limit if `None`.
    pub limit: Option<usize>,
}

impl QueueFilter {
    /// Matches all runs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Only runs of this queue.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Sets the maximum number of runs.
    #[must_use]
    pub const fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }
}

/// Lists runs of the queue that have not ended.
pub(super) async fn list(
    pool: &ConnectionPool,
    filter: &QueueFilter,
) -> Result<Vec<QueueEntry>, LogError> {
    let rows = sqlx::query(
        "SELECT queue.run, queue.queue, queue.agent, queue.session, not_before, queued_at, queue.owner, refused, \
         runs.state FROM backstop.queue LEFT JOIN backstop.runs ON runs.run = queue.run \
         WHERE runs.ended_at IS NULL AND ($1::text IS NULL OR queue.queue = $1) \
         ORDER BY queue.number LIMIT $2",
    )
    .bind(filter.queue.as_deref().map(|queue| encode_text(queue).into_owned()))
    .bind(filter.limit.map(count))
    .fetch_all(&mut *pool.lend().await?)
    .await
    .map_err(Fault::from)?;
    rows.iter().map(QueueEntry::from_row).collect()
}
