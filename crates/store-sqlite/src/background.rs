//! Background work of a database, apart from its writer.

use std::time::Duration;

use backstop_error_store::StoreError;
use backstop_retention::StoreRetention;
use layer0::Timestamp;
use layer0::id::RunId;
use serde_json::json;

use crate::database::Database;
use crate::expired::ForgetExpired;
use crate::fault::Fault;
use crate::prune::{self, PruneStatements};
use crate::start_keys::ExpireKeys;
use crate::state::ExpireState;
use crate::store_row::agree_retention;

/// Prunes after an append, if it is time and runs are pruned.
pub(crate) fn after_append(database: &Database, at: Timestamp) {
    if database.upkeep().ends_runs() {
        after(database, at);
    }
}

/// Maximum lead of this process's clock over the newest event of other runs that is trusted at first.
const TRUSTED: Duration = Duration::from_secs(24 * 60 * 60);

/// Prunes after a write, if it is time. A time that other processes wrote is trusted only if it is before the time of
/// this process.
pub(crate) fn after(database: &Database, at: Timestamp) {
    // time of day: this process's clock decides what is old, within the bound of `read_trusted_time`.
    let now = at.min(database.now());
    let Some(retention) = database.upkeep().due(now) else { return };
    let pruning = database.clone();
    database.upkeep().watch(|earlier| {
        tokio::spawn(async move {
            earlier.wait_for_end().await;
            if let Err(error) = work(&pruning, retention, now).await {
                tracing::warn!(%error, "pruning failed; it is tried again later");
            }
        })
    });
}

/// Returns the time that decides what is old: the time of this process, but at most a day after the newest event of
/// other processes' runs.
///
/// A clock that is ahead then removes nothing that others have just written; after a pause of more than a day, the next
/// process trusts its clock.
async fn read_trusted_time(database: &Database, now: Timestamp) -> Result<Timestamp, StoreError> {
    let own: Vec<RunId> = database.own_runs();
    let own: Vec<&str> = own.iter().map(RunId::as_str).collect();
    let newest: Option<i64> = sqlx::query_scalar(
        "SELECT max(at) FROM (SELECT events.at FROM runs JOIN events ON events.id = runs.last_event \
         WHERE runs.run NOT IN (SELECT value FROM json_each($1)) ORDER BY runs.id DESC LIMIT 64)",
    )
    .bind(json!(own).to_string())
    .fetch_one(database.readers())
    .await
    .map_err(Fault::from)?;
    let bound = newest.map(|newest| Timestamp::from_millis(newest).after(TRUSTED));
    match bound {
        Some(bound) if bound < now => {
            tracing::info!(%now, newest = %bound, "the clock is more than a day ahead of what is stored; what is old is held back");
            Ok(bound)
        }
        _ => Ok(now),
    }
}

async fn work(
    database: &Database,
    retention: StoreRetention,
    now: Timestamp,
) -> Result<(), StoreError> {
    let retention = agree_retention(database.readers(), database.for_writing()?, retention).await?;
    let now = read_trusted_time(database, now).await?;
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
    while database.for_writing()?.perform(ForgetExpired(now)).await? > 0 {}
    for kind in PruneStatements::ALL {
        let pruned = prune::prune(database, kind, retention.texts, now).await?;
        if pruned.rows > 0 {
            tracing::info!(rows = pruned.rows, bytes = pruned.bytes, "errors or results pruned");
        }
    }
    Ok(())
}
