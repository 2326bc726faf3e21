//! What a database does for itself beside its writer.

use backstop_error_store::StoreError;
use backstop_retention::StoreRetention;
use layer0::Timestamp;

use crate::database::Database;
use crate::prune::{self, Kind};
use crate::start_keys::ExpireKeys;
use crate::state::ExpireState;

/// Hears that runs were written to.
pub(crate) fn after_append(database: &Database, at: Timestamp) {
    if database.upkeep().ends_runs() {
        after(database, at);
    }
}

/// Hears that something was stored, and prunes if it is time.
pub(crate) fn after(database: &Database, at: Timestamp) {
    let upkeep = database.upkeep();
    let Some(retention) = upkeep.due(at) else { return };
    let database = database.clone();
    upkeep.watch(tokio::spawn(async move {
        if let Err(error) = work(&database, retention, at).await {
            tracing::warn!(%error, "pruning failed; it is tried again later");
        }
    }));
}

async fn work(
    database: &Database,
    retention: StoreRetention,
    now: Timestamp,
) -> Result<(), StoreError> {
    if let Some(age) = retention.runs {
        let removed = backstop_retention::prune_runs(database, age, &[], now).await?;
        if !removed.runs.is_empty() {
            tracing::info!(runs = removed.runs.len(), "runs pruned");
        }
        let removed = backstop_retention::prune_segments(database, age, now).await?;
        if !removed.runs.is_empty() {
            tracing::info!(segments = removed.runs.len(), "segments of subscriptions pruned");
        }
    }
    while database.for_writing()?.perform(ExpireState(now)).await? > 0 {}
    while database.for_writing()?.perform(ExpireKeys(now)).await? > 0 {}
    for kind in Kind::ALL {
        let pruned = prune::prune(database, kind, retention.texts, now).await?;
        if pruned.rows > 0 {
            tracing::info!(rows = pruned.rows, bytes = pruned.bytes, "errors or results pruned");
        }
    }
    Ok(())
}
