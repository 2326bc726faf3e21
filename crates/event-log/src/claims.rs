//! Which runs this process writes to, for logs that other processes write to as well.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use layer0::id::RunId;

use crate::Claim;

/// The claims that an open log of this process holds. Clones share them.
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
pub struct Claims(Arc<Held>);

#[derive(Debug)]
struct Held {
    by_run: Mutex<HashMap<RunId, Holding>>,
    /// The epoch of the next claim of a new run.
    next_epoch: AtomicU64,
}

/// What is held of a run.
#[derive(Debug, Clone)]
struct Holding {
    /// The epoch under which it is written to; 0 while it is asked for.
    epoch: u64,
    /// The owner for which it was asked; `None` until it is asked for, and of a run that begins.
    owner: Option<Arc<str>>,
    /// May another process have it meanwhile?
    is_lost: bool,
}

impl Default for Claims {
    fn default() -> Self {
        let next_epoch = AtomicU64::new(Claim::FIRST);
        Self(Arc::new(Held { by_run: Mutex::default(), next_epoch }))
    }
}

impl Claims {
    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Holding>> {
        self.0.by_run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the epoch of a new run's claim. No two are the same: a run that was refused is begun again
    /// under its id, and what frees the first claim must not free the second.
    #[must_use]
    pub fn new_epoch(&self) -> u64 {
        self.0.next_epoch.fetch_add(1, Ordering::Relaxed)
    }

    /// Reserves a run in this process; `None` when it is claimed here already. What is reserved is freed by
    /// `release`, which gets the epoch of the claim, or `None` where that was asked for and no answer came.
    pub fn reserve(
        &self,
        run: &RunId,
        epoch: u64,
        release: impl FnOnce(Option<u64>) + Send + Sync + 'static,
    ) -> Option<Reserved> {
        let mut held = self.lock();
        if held.contains_key(run) {
            return None;
        }
        held.insert(run.clone(), Holding { epoch, owner: None, is_lost: false });
        let release: Option<Box<dyn FnOnce(Option<u64>) + Send + Sync>> = Some(Box::new(release));
        Some(Reserved { claims: self.clone(), run: run.clone(), release, is_asking: false })
    }

    /// The last event of the run frees it in the append itself.
    pub fn ended(&self, run: &RunId) {
        if let Some(holding) = self.lock().get_mut(run) {
            holding.epoch = 0;
        }
    }

    /// Notes the owner for which a run is asked for. Call it where the owner cannot end meanwhile, before the request is
    /// sent.
    pub fn ask_for(&self, run: &RunId, owner: &Arc<str>) {
        if let Some(holding) = self.lock().get_mut(run).filter(|holding| holding.epoch == 0) {
            (holding.owner, holding.is_lost) = (Some(Arc::clone(owner)), false);
        }
    }

    /// Notes that other processes may have what an owner of this process held: it has ended. A claim that is asked for
    /// another owner, or not asked for yet, is not lost.
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
            // The owner of a run that begins may have been this one.
            let is_of_owner =
                holding.owner.as_deref().map_or(holding.epoch > 0, |own| own == owner);
            holding.is_lost |= is_of_owner;
        }
    }

    /// Notes that other processes have these runs, each unless it was claimed anew under another epoch.
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

    /// Was the claim of a run lost?
    #[must_use]
    pub fn is_lost(&self, run: &RunId) -> bool {
        self.lock().get(run).is_some_and(|holding| holding.is_lost)
    }

    /// Returns the runs that are to be freed when the log is closed, each with the epoch of its claim.
    #[must_use]
    pub fn still_held(&self) -> Vec<(RunId, u64)> {
        let held = self.lock();
        let claimed = held.iter().filter(|(_, holding)| holding.epoch > 0 && !holding.is_lost);
        claimed.map(|(run, holding)| (run.clone(), holding.epoch)).collect()
    }
}

/// A run that is this process's until it is dropped.
#[must_use = "the run is free again when it is dropped"]
pub struct Reserved {
    claims: Claims,
    run: RunId,
    release: Option<Box<dyn FnOnce(Option<u64>) + Send + Sync>>,
    /// Was the log asked for the claim, and the answer not heard yet?
    is_asking: bool,
}

impl Reserved {
    /// Notes that the log is asked for the claim: dropped before the answer is heard, it is freed whether it
    /// was given or not.
    pub const fn asking(&mut self) {
        self.is_asking = true;
    }

    /// Notes that the log has answered, and gave no claim.
    pub const fn refused(&mut self) {
        self.is_asking = false;
    }

    /// Makes a claim of it.
    pub fn claim(mut self, epoch: u64) -> Claim {
        self.is_asking = false;
        if let Some(holding) = self.claims.lock().get_mut(&self.run) {
            holding.epoch = epoch;
        }
        Claim::new(epoch, self)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // Under the lock, so that a claim that follows at once is asked for behind what frees this one.
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

impl fmt::Debug for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserved").field("run", &self.run).finish_non_exhaustive()
    }
}
