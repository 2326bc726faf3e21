//! The lease of a claim: that of the owner under which it was made.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use backstop_event_log::AtWork;

use crate::current_owner::CurrentOwner;
use crate::lease::Lease;

/// How often it is looked whether a lease was renewed.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The lease of a claim. A run that begins is claimed before there need be an owner: its first append makes one,
/// before anything is started.
#[derive(Debug)]
pub(crate) struct ClaimLease {
    owner: Arc<CurrentOwner>,
    lease: OnceLock<Arc<Lease>>,
}

impl ClaimLease {
    /// Makes the lease of a claim of a run that begins: that of the owner which its first append finds.
    pub(crate) const fn of_new(owner: Arc<CurrentOwner>) -> Self {
        Self { owner, lease: OnceLock::new() }
    }

    /// Makes the lease of a claim that was given to an owner with this lease.
    pub(crate) fn of(owner: Arc<CurrentOwner>, lease: Arc<Lease>) -> Self {
        Self { owner, lease: OnceLock::from(lease) }
    }

    fn lease(&self) -> Option<&Arc<Lease>> {
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
        !self.owner.is_resting() && self.lease().is_some_and(|lease| lease.may_start())
    }

    fn at_work(&self) -> Option<AtWork> {
        Some(AtWork::new(self.owner.at_work.enter()))
    }

    async fn until_may_start(&self) {
        while !self.may_start() {
            if self.lease().is_some_and(|lease| lease.has_ended()) {
                std::future::pending::<()>().await;
            }
            SystemClock.sleep(LOOK_EVERY).await;
        }
    }

    async fn ended(&self) {
        loop {
            match self.lease() {
                Some(lease) => return lease.ended().await,
                None => SystemClock.sleep(LOOK_EVERY).await,
            }
        }
    }
}
