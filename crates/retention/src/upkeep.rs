//! What a database keeps, for how long, and when it was pruned last.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use backstop_error_store::{Holds, Retention};
use layer0::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::task::JoinHandle;

/// How often it prunes in the background, at most.
const PRUNE_EVERY: Duration = Duration::from_secs(600);

/// The time for which a store knows the ids of removed errors and results, which answer "expired".
const EXPIRED_KEPT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Returns the time before which ids that were taken away are not known any more.
#[must_use]
pub fn expired_until(now: Timestamp) -> Timestamp {
    let kept = i64::try_from(EXPIRED_KEPT.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_sub(kept))
}

/// Says how long a durable store keeps what is in it.
///
/// Errors and results are kept after they were last seen and after the last run of their session
/// ended. Runs are kept for ever unless told otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreRetention {
    /// Errors, and likewise results.
    pub texts: Retention,
    /// How long runs are kept after they ended; for ever where `None`.
    pub runs: Option<Duration>,
    /// Whether `texts` is a default, which gives way to the retention that another process has set for the store.
    pub is_default: bool,
}

impl Default for StoreRetention {
    fn default() -> Self {
        Self { texts: Retention::default(), runs: None, is_default: true }
    }
}

impl StoreRetention {
    /// Returns the retention of texts as a store remembers it; `None` for a default.
    #[must_use]
    pub fn setting(&self) -> Option<String> {
        let Retention { max_age, max_rows, max_bytes, .. } = self.texts;
        let max_age_ms = max_age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        let setting = Setting { max_age_ms, max_rows, max_bytes };
        (!self.is_default).then(|| json!(setting).to_string())
    }

    /// Returns this retention with the texts that a store remembers, if its own are a default. What cannot be read is
    /// left out.
    #[must_use]
    pub fn or_setting(mut self, setting: Option<&str>) -> Self {
        let known = setting.and_then(|text| serde_json::from_str::<Setting>(text).ok());
        if let (true, Some(known)) = (self.is_default, known) {
            self.texts.max_age = known.max_age_ms.map(Duration::from_millis);
            (self.texts.max_rows, self.texts.max_bytes) = (known.max_rows, known.max_bytes);
        }
        self
    }

    /// Keeps runs only this long after they ended.
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

/// The limits of a [`Retention`], as a store remembers them.
#[derive(Debug, Serialize, Deserialize)]
struct Setting {
    max_age_ms: Option<u64>,
    max_rows: Option<u64>,
    max_bytes: Option<u64>,
}

/// Prunes in the background.
#[derive(Debug, Default)]
pub struct Upkeep {
    retention: StoreRetention,
    holds: Holds,
    pruned_at: Mutex<Option<Timestamp>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Upkeep {
    /// Keeps what is in a store as `retention` says.
    #[must_use]
    pub fn new(retention: StoreRetention) -> Self {
        Self { retention, ..Self::default() }
    }

    /// Returns the sessions of which a run is open in this process, whatever log records it.
    #[must_use]
    pub const fn holds(&self) -> &Holds {
        &self.holds
    }

    /// Returns the retention that this process has set.
    #[must_use]
    pub const fn retention(&self) -> StoreRetention {
        self.retention
    }

    /// Returns what is kept, when it is time to prune. `now` is the time of the store, or of this process, and never one
    /// that another process wrote.
    #[must_use]
    pub fn due(&self, now: Timestamp) -> Option<StoreRetention> {
        let mut pruned_at = self.pruned_at.lock().unwrap_or_else(PoisonError::into_inner);
        // A clock that was set back is no reason to wait until it has caught up.
        let is_recent = |last: Timestamp| now >= last && now.since(last) < PRUNE_EVERY;
        if pruned_at.is_some_and(is_recent) {
            return None;
        }
        *pruned_at = Some(now);
        Some(self.retention)
    }

    /// Are runs taken away too?
    #[must_use]
    pub const fn ends_runs(&self) -> bool {
        self.retention.runs.is_some()
    }

    /// Begins a pass, which awaits the one before it: a long one is not cut off.
    pub fn watch(&self, begin: impl FnOnce(EarlierPass) -> JoinHandle<()>) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = EarlierPass(task.take());
        *task = Some(begin(earlier));
    }

    /// Stops what is at work in the background.
    ///
    /// # Cancel safety
    ///
    /// What was at work is stopped also when the future is dropped.
    pub async fn stop(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
            // It ends at its next await; that it was aborted is no failure.
            let _ = task.await;
        }
    }
}

/// The pass before the one that begins. It is stopped where this is dropped.
#[derive(Debug)]
pub struct EarlierPass(Option<JoinHandle<()>>);

impl EarlierPass {
    /// Waits until the pass is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the pass.
    pub async fn ended(mut self) {
        if let Some(task) = &mut self.0 {
            // One that was stopped is over, too.
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
