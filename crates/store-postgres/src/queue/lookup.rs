use backstop_event_log::LogError;
use layer0::id::RunId;
use sqlx::QueryBuilder;

use super::values::count;
use crate::fault::Fault;
use crate::pool::ConnectionPool;
use crate::runs::between;
use crate::text::{column, encode_text};

/// Returns the runs of the queue that have not ended and whose ids have a prefix.
pub(super) async fn find(
    pool: &ConnectionPool,
    prefix: &str,
    most: usize,
) -> Result<Vec<RunId>, LogError> {
    let mut query = QueryBuilder::new(
        "SELECT run FROM backstop.queue WHERE NOT EXISTS \
         (SELECT 1 FROM backstop.runs WHERE runs.run = queue.run AND ended_at IS NOT NULL)",
    );
    between(&mut query, "run", &encode_text(prefix));
    query.push(" ORDER BY run LIMIT ").push_bind(count(most));
    let rows = query.build().fetch_all(&mut *pool.lend().await?).await.map_err(Fault::from)?;
    rows.iter().map(|row| Ok(column(row, "run").map_err(Fault::from)?.into())).collect()
}
