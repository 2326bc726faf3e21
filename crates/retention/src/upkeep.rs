//! Retention of a database, and the schedule of pruning.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use backstop_error_store::{Holds, Retention};
use layer0::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::task::JoinHandle;

/// Minimum time between background prunings.
const PRUNE_EVERY: Duration = Duration::from_secs(600);

/// Time for which a store knows the ids of removed errors and results, which answer "expired".
const EXPIRED_KEPT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Returns the time before which ids of removed texts are no longer known.
#[must_use]
pub fn expired_until(now: Timestamp) -> Timestamp {
    let kept = i64::try_from(EXPIRED_KEPT.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_sub(kept))
}

/// The retention of a durable store.
///
/// Errors and results are kept for a time after they were last seen and after the last run of their session ended. Runs
/// are kept for ever by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreRetention {
    /// Retention of errors, and separately of results.
    pub texts: Retention,
    /// Time for which runs are kept after their end; for ever if `None`.
    pub runs: Option<Duration>,
    /// Whether `texts` is a default, which a setting of another process in the store replaces.
    pub is_default: bool,
}

impl Default for StoreRetention {
    fn default() -> Self {
        Self { texts: Retention::default(), runs: None, is_default: true }
    }
}

impl StoreRetention {
    /// Returns the retention of texts in its stored form; `None` for a default.
    #[must_use]
    pub fn setting(&self) -> Option<String> {
        let Retention { max_age, max_rows, max_bytes, .. } = self.texts;
        let max_age_ms = max_age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        let setting = Setting { max_age_ms, max_rows, max_bytes };
        (!self.is_default).then(|| json!(setting).to_string())
    }

    /// Replaces the retention of texts with the stored one, if its own is a default. A setting that cannot be read is
    /// ignored.
    #[must_use]
    pub fn or_setting(mut self, setting: Option<&str>) -> Self {
        let known = setting.and_then(|text| serde_json::from_str::<Setting>(text).ok());
        if let (true, Some(known)) = (self.is_default, known) {
            self.texts.max_age = known.max_age_ms.map(Duration::from_millis);
            (self.texts.max_rows, self.texts.max_bytes) = (known.max_rows, known.max_bytes);
        }
        self
    }

    /// Keeps runs only for this time after their end.
    #[must_use]
    pub const fn runs(mut self, age: Duration) -> Self {
        self.runs = Some(age);
        self
    }
}

impl From<Retention> for StoreRetention {
    fn from(texts: Retention) -> Self {
        Self { texts, runs: None, is_default: false }
    }
}

/// The limits of a [`Retention`] in their stored form.
#[derive(Debug, Serialize, Deserialize)]
struct Setting {
    max_age_ms: Option<u64>,
    max_rows: Option<u64>,
    max_bytes: Option<u64>,
}

/// State of background pruning.
#[derive(Debug, Default)]
pub struct Upkeep {
    retention: StoreRetention,
    holds: Holds,
    pruned_at: Mutex<Option<Timestamp>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Upkeep {
    /// Creates the state of a store with this retention.
    #[must_use]
    pub fn new(retention: StoreRetention) -> Self {
        Self { retention, ..Self::default() }
    }

    /// Returns the sessions with an open run in this process, whatever log records it.
    #[must_use]
    pub const fn holds(&self) -> &Holds {
        &self.holds
    }

    /// Returns the retention that this process has set.
    #[must_use]
    pub const fn retention(&self) -> StoreRetention {
        self.retention
    }

    /// Returns the retention if a pruning is due.
    ///
    /// `now` is the time of the store or of this process, never one that another process wrote.
    #[must_use]
    pub fn due(&self, now: Timestamp) -> Option<StoreRetention> {
        let mut pruned_at = self.pruned_at.lock().unwrap_or_else(PoisonError::into_inner);
        // time of day: a step either way starts the next pruning early, and does not put it off.
        let is_recent = |last: Timestamp| now >= last && now.since(last) < PRUNE_EVERY;
        if pruned_at.is_some_and(is_recent) {
            return None;
        }
        *pruned_at = Some(now);
        Some(self.retention)
    }

    /// Returns whether runs are pruned too.
    #[must_use]
    pub const fn ends_runs(&self) -> bool {
        self.retention.runs.is_some()
    }

    /// Starts a pruning pass, which waits for the previous one, so that a long pass is not cut off.
    pub fn watch(&self, begin: impl FnOnce(EarlierPass) -> JoinHandle<()>) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = EarlierPass(task.take());
        *task = Some(begin(earlier));
    }

    /// Stops background pruning.
    ///
    /// # Cancel safety
    ///
    /// The pass is stopped even if the future is dropped.
    pub async fn stop(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
            // The task ends at its next await; an abort is not a failure.
            let _ = task.await;
        }
    }
}

/// The previous pruning pass. Dropping this stops it.
#[derive(Debug)]
pub struct EarlierPass(Option<JoinHandle<()>>);

impl EarlierPass {
    /// Waits until the pass has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the pass.
    pub async fn wait_for_end(mut self) {
        if let Some(task) = &mut self.0 {
            // A stopped pass has ended too.
            let _ = task.await;
        }
    }
}

impl Drop for EarlierPass {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: S10
    #[test]
    fn default_gives_way_to_a_setting() {
        let years = Retention::default().max_age(Duration::from_secs(10 * 365 * 24 * 60 * 60));
        let stated = StoreRetention::from(years.max_rows(7)).runs(Duration::from_secs(9));
        let setting = stated.setting().unwrap();
        let default = StoreRetention::default();
        assert_eq!(default.setting(), None);
        assert_eq!(default.or_setting(Some(&setting)).texts, stated.texts);
        assert_eq!(default.or_setting(Some("?")), default);
        let other = StoreRetention::from(Retention::NONE);
        assert_eq!(other.or_setting(Some(&setting)), other);
    }
}
