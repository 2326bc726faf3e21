//! What a database does for itself beside its writer.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use error_store::{Holds, Retention, StoreError};
use layer0::Timestamp;
use tokio::task::JoinHandle;

use crate::database::Database;
use crate::prune::{self, Kind};
use crate::removal;

/// How often it prunes in the background, at most.
const PRUNE_EVERY: Duration = Duration::from_secs(600);

/// How long a [`Database`] keeps what is in it.
///
/// Errors and results are kept after they were last seen and after the last run of their session
/// ended. Runs are kept for ever unless told otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct StoreRetention {
    /// Errors, and likewise results.
    pub texts: Retention,
    /// How long runs are kept after they ended; for ever where `None`.
    pub runs: Option<Duration>,
}

impl StoreRetention {
    /// Keeps runs only this long after they ended.
    #[must_use]
    pub const fn runs(mut self, age: Duration) -> Self {
        self.runs = Some(age);
        self
    }
}

impl From<Retention> for StoreRetention {
    fn from(texts: Retention) -> Self {
        Self { texts, runs: None }
    }
}

/// Prunes in the background. The time is that of what is written, so that it needs no clock.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    retention: StoreRetention,
    holds: Holds,
    pruned_at: Mutex<Option<Timestamp>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Upkeep {
    pub(crate) fn new(retention: StoreRetention) -> Self {
        Self { retention, ..Self::default() }
    }

    /// The sessions of which a run is open in this process, whatever log records it.
    pub(crate) const fn holds(&self) -> &Holds {
        &self.holds
    }

    /// Hears that runs were written to.
    pub(crate) fn after_append(&self, at: Timestamp, database: &Database) {
        if self.retention.runs.is_some() {
            self.after(at, database);
        }
    }

    /// Hears that something was stored, and prunes if it is time.
    pub(crate) fn after(&self, at: Timestamp, database: &Database) {
        let mut pruned_at = self.pruned_at.lock().unwrap_or_else(PoisonError::into_inner);
        if pruned_at.is_some_and(|last| at.since(last) < PRUNE_EVERY) {
            return;
        }
        *pruned_at = Some(at);
        let (database, retention) = (database.clone(), self.retention);
        let task = tokio::spawn(async move {
            if let Err(error) = work(&database, retention, at).await {
                tracing::warn!(%error, "pruning failed; it is tried again later");
            }
        });
        let before = self.task.lock().unwrap_or_else(PoisonError::into_inner).replace(task);
        if let Some(before) = before {
            before.abort();
        }
    }

    /// Stops what is at work in the background.
    pub(crate) async fn stop(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
            // It ends at its next await; that it was aborted is no failure.
            let _ = task.await;
        }
    }
}

async fn work(
    database: &Database,
    retention: StoreRetention,
    now: Timestamp,
) -> Result<(), StoreError> {
    if let Some(age) = retention.runs {
        let removed = removal::prune_runs(database, age, &[], now).await?;
        if !removed.runs.is_empty() {
            tracing::info!(runs = removed.runs.len(), "runs pruned");
        }
    }
    for kind in Kind::ALL {
        let pruned = prune::prune(database, kind, retention.texts, now).await?;
        if pruned.rows > 0 {
            tracing::info!(rows = pruned.rows, bytes = pruned.bytes, "errors or results pruned");
        }
    }
    Ok(())
}
