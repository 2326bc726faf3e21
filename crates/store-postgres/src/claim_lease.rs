//! The lease of a claim: that of the owner at the time of the claim.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use backstop_event_log::ActionGuard;
use layer0::id::RunId;

use crate::current_owner::CurrentOwner;
use crate::lease::OwnerLease;

/// Interval between checks for a lease or its renewal.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The lease of a claim. A new run may be claimed before there is an owner: its first append creates one, before any
/// action starts.
#[derive(Debug)]
pub(crate) struct ClaimLease {
    owner: Arc<CurrentOwner>,
    /// The claimed run; `None` without a claim.
    run: Option<RunId>,
    lease: OnceLock<Arc<OwnerLease>>,
}

impl ClaimLease {
    /// Creates the lease of a process without a claim.
    pub(crate) const fn without_run(owner: Arc<CurrentOwner>) -> Self {
        Self { owner, run: None, lease: OnceLock::new() }
    }

    /// Creates the lease of a new run's claim: that of the owner at its first append.
    pub(crate) const fn for_new(owner: Arc<CurrentOwner>, run: RunId) -> Self {
        Self { owner, run: Some(run), lease: OnceLock::new() }
    }

    /// Creates the lease of a claim granted to an owner with this lease.
    pub(crate) fn for_given(owner: Arc<CurrentOwner>, run: RunId, lease: Arc<OwnerLease>) -> Self {
        Self { owner, run: Some(run), lease: OnceLock::from(lease) }
    }

    /// Returns whether another process has the run.
    fn is_lost(&self) -> bool {
        self.run.as_ref().is_some_and(|run| self.owner.claims().is_lost(run))
    }

    /// Waits for the lease, and then for the given future.
    async fn with_lease<T>(&self, wait: impl AsyncFnOnce(&OwnerLease) -> T) -> T {
        loop {
            match self.lease() {
                Some(lease) => return wait(lease).await,
                None => SystemClock.sleep(LOOK_EVERY).await,
            }
        }
    }

    fn lease(&self) -> Option<&Arc<OwnerLease>> {
        if let Some(lease) = self.lease.get() {
            return Some(lease);
        }
        let lease = self.owner.lease().filter(|lease| !lease.has_ended())?;
        Some(self.lease.get_or_init(|| lease))
    }
}

#[async_trait]
impl backstop_event_log::Lease for ClaimLease {
    fn may_start(&self) -> bool {
        !self.owner.is_resting()
            && !self.is_lost()
            && self.lease().is_some_and(|lease| lease.may_start())
    }

    fn at_work(&self) -> Option<ActionGuard> {
        Some(ActionGuard::new(self.owner.at_work.enter()))
    }

    async fn until_may_start(&self) {
        while !self.may_start() {
            if self.is_lost() || self.lease().is_some_and(|lease| lease.has_ended()) {
                std::future::pending::<()>().await;
            }
            SystemClock.sleep(LOOK_EVERY).await;
        }
    }

    async fn wait_for_end(&self) {
        self.with_lease(async |lease| lease.ended_or(|| self.is_lost()).await).await;
    }

    async fn must_stop(&self) {
        let must_stop = self.with_lease(async |lease| lease.must_stop().await);
        tokio::select! {
            () = must_stop => {}
            () = self.wait_for_end() => {}
        }
    }
}
