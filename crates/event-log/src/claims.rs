//! Claims of this process, for logs that other processes write to as well.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use layer0::id::RunId;

use crate::Claim;

/// The claims of an open log in this process. Clones share them.
///
/// ```
/// use backstop_event_log::{Claim, Claims};
///
/// let claims = Claims::default();
/// let reserved = claims.reserve(&"run_1".into(), Claim::FIRST, |_epoch| {}).ok_or("it is free")?;
/// assert!(claims.reserve(&"run_1".into(), Claim::FIRST, |_epoch| {}).is_none());
/// drop(reserved.claim(Claim::FIRST));
/// assert!(claims.reserve(&"run_1".into(), Claim::FIRST, |_epoch| {}).is_some());
/// # Ok::<(), &str>(())
/// ```
#[derive(Debug, Clone)]
pub struct Claims(Arc<ClaimTable>);

#[derive(Debug)]
struct ClaimTable {
    by_run: Mutex<HashMap<RunId, Holding>>,
    /// Epoch of the next claim of a new run.
    next_epoch: AtomicU64,
}

/// The claim of a run, or a pending request for it.
#[derive(Debug, Clone)]
struct Holding {
    /// Epoch of the claim; 0 while the claim is requested.
    epoch: u64,
    /// The owner for which it was requested; `None` before the request, and for a new run.
    owner: Option<Arc<str>>,
    /// Whether another process may have it now.
    is_lost: bool,
}

impl Default for Claims {
    fn default() -> Self {
        let next_epoch = AtomicU64::new(Claim::FIRST);
        Self(Arc::new(ClaimTable { by_run: Mutex::default(), next_epoch }))
    }
}

impl Claims {
    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Holding>> {
        self.0.by_run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the epoch of a new run's claim. Epochs are unique: a refused run may start again under the same id, and
    /// the release of the first claim must not release the second.
    #[must_use]
    pub fn new_epoch(&self) -> u64 {
        self.0.next_epoch.fetch_add(1, Ordering::Relaxed)
    }

    /// Reserves a run in this process; `None` if it is already claimed here.
    ///
    /// The reservation is released by `release`, which gets the epoch of the claim, or `None` if the claim was
    /// requested without an answer.
    pub fn reserve(
        &self,
        run: &RunId,
        epoch: u64,
        release: impl FnOnce(Option<u64>) + Send + Sync + 'static,
    ) -> Option<RunReservation> {
        let mut held = self.lock();
        if held.contains_key(run) {
            return None;
        }
        held.insert(run.clone(), Holding { epoch, owner: None, is_lost: false });
        let release: Option<Box<dyn FnOnce(Option<u64>) + Send + Sync>> = Some(Box::new(release));
        Some(RunReservation { claims: self.clone(), run: run.clone(), release, is_asking: false })
    }

    /// Marks a claim as released by the append of the run's last event.
    pub fn mark_released(&self, run: &RunId) {
        if let Some(holding) = self.lock().get_mut(run) {
            holding.epoch = 0;
        }
    }

    /// Sets the owner for which a run is requested. Must be called before the request is sent, and at a point where the
    /// owner cannot end.
    pub fn ask_for(&self, run: &RunId, owner: &Arc<str>) {
        if let Some(holding) = self.lock().get_mut(run).filter(|holding| holding.epoch == 0) {
            (holding.owner, holding.is_lost) = (Some(Arc::clone(owner)), false);
        }
    }

    /// Marks the claims of an owner of this process as lost, because the owner has ended. A claim that is requested for
    /// another owner, or not yet requested, is not lost.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use backstop_event_log::Claims;
    ///
    /// let (claims, run) = (Claims::default(), "run_1".into());
    /// let (ended, next): (Arc<str>, Arc<str>) = ("ended".into(), "next".into());
    /// let reserved = claims.reserve(&run, 0, |_epoch| {}).ok_or("it is free")?;
    /// claims.lose_all(&ended);
    /// claims.ask_for(&run, &next);
    /// let claim = reserved.claim(7);
    /// assert!(!claims.is_lost(&run));
    /// claims.lose_all(&next);
    /// assert!(claims.is_lost(&run));
    /// # drop(claim);
    /// # Ok::<(), &str>(())
    /// ```
    pub fn lose_all(&self, owner: &str) {
        for holding in self.lock().values_mut() {
            // The owner of a new run may have been this owner.
            let is_of_owner =
                holding.owner.as_deref().map_or(holding.epoch > 0, |own| own == owner);
            holding.is_lost |= is_of_owner;
        }
    }

    /// Marks the claims of these runs as lost, except those that have another epoch by now.
    ///
    /// ```
    /// use backstop_event_log::{Claim, Claims};
    ///
    /// let claims = Claims::default();
    /// let run = "run_1".into();
    /// let reserved = claims.reserve(&run, Claim::FIRST, |_epoch| {}).ok_or("it is free")?;
    /// let claim = reserved.claim(7);
    /// claims.lose(&[(run.clone(), 6)]);
    /// assert!(!claims.is_lost(&run));
    /// claims.lose(&[(run.clone(), claim.epoch())]);
    /// assert!(claims.is_lost(&run));
    /// # Ok::<(), &str>(())
    /// ```
    pub fn lose(&self, runs: &[(RunId, u64)]) {
        let mut held = self.lock();
        for (run, epoch) in runs {
            if let Some(holding) = held.get_mut(run).filter(|holding| holding.epoch == *epoch) {
                holding.is_lost = true;
            }
        }
    }

    /// Returns whether the claim of a run was lost.
    #[must_use]
    pub fn is_lost(&self, run: &RunId) -> bool {
        self.lock().get(run).is_some_and(|holding| holding.is_lost)
    }

    /// Returns the runs to release when the log is closed, each with the epoch of its claim.
    #[must_use]
    pub fn still_held(&self) -> Vec<(RunId, u64)> {
        let held = self.lock();
        let claimed = held.iter().filter(|(_, holding)| holding.epoch > 0 && !holding.is_lost);
        claimed.map(|(run, holding)| (run.clone(), holding.epoch)).collect()
    }
}

/// A run reserved for this process until it is dropped.
#[must_use = "the run is free again when it is dropped"]
pub struct RunReservation {
    claims: Claims,
    run: RunId,
    release: Option<Box<dyn FnOnce(Option<u64>) + Send + Sync>>,
    /// Whether the log was asked for the claim and has not answered yet.
    is_asking: bool,
}

impl RunReservation {
    /// Marks the claim as requested: if this is dropped before the answer, the run is released whether or not the claim
    /// was granted.
    pub const fn asking(&mut self) {
        self.is_asking = true;
    }

    /// Marks the request as refused.
    pub const fn mark_refused(&mut self) {
        self.is_asking = false;
    }

    /// Turns the reservation into a claim.
    pub fn claim(mut self, epoch: u64) -> Claim {
        self.is_asking = false;
        if let Some(holding) = self.claims.lock().get_mut(&self.run) {
            holding.epoch = epoch;
        }
        Claim::new(epoch, self)
    }
}

impl Drop for RunReservation {
    fn drop(&mut self) {
        // The lock is held, so that a claim that follows at once is requested after this release.
        let mut held = self.claims.lock();
        let epoch = held.get(&self.run).map_or(0, |holding| holding.epoch);
        let freed = match epoch {
            0 => self.is_asking.then_some(None),
            epoch => Some(Some(epoch)),
        };
        if let (Some(freed), Some(release)) = (freed, self.release.take()) {
            release(freed);
        }
        held.remove(&self.run);
    }
}

impl fmt::Debug for RunReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserved").field("run", &self.run).finish_non_exhaustive()
    }
}
