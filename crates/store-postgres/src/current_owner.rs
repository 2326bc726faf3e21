//! The current owner of an open database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backstop_event_log::Claims;
use layer0::id::RunId;
use tokio::sync::Mutex;

use crate::connect::Connect;
use crate::fault::Fault;
use crate::lease::OwnerLease;
use crate::owner::Owner;
use crate::work_count::WorkCount;

/// The current owner of this open database: created for the first claim, and again after its lease has ended.
#[derive(Debug)]
pub(crate) struct CurrentOwner {
    connect: Connect,
    lasts: Duration,
    claims: Claims,
    current: Mutex<Option<Owner>>,
    /// The lease of the owner, for callers that cannot wait.
    lease: std::sync::Mutex<Option<Arc<OwnerLease>>>,
    /// Whether no action may start any more, because the process is about to leave.
    is_resting: AtomicBool,
    pub(crate) at_work: WorkCount,
    /// Whether there will be no owner any more.
    has_left: AtomicBool,
}

/// An owner's id and its lease.
pub(crate) type Held = (Arc<str>, Arc<OwnerLease>);

impl CurrentOwner {
    pub(crate) fn new(connect: Connect, lasts: Duration, claims: Claims) -> Self {
        Self {
            connect,
            lasts,
            claims,
            current: Mutex::new(None),
            lease: std::sync::Mutex::default(),
            is_resting: AtomicBool::new(false),
            at_work: WorkCount::default(),
            has_left: AtomicBool::new(false),
        }
    }

    /// Returns the claims of this open database.
    pub(crate) const fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Lets no action start from now on.
    pub(crate) fn rest(&self) {
        self.is_resting.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_resting(&self) -> bool {
        self.is_resting.load(Ordering::SeqCst)
    }

    /// Returns the owner; creates one if there is none.
    pub(crate) async fn get(&self) -> Result<Held, Fault> {
        let mut current = self.current.lock().await;
        self.get_or_start(&mut current).await
    }

    async fn get_or_start(&self, current: &mut Option<Owner>) -> Result<Held, Fault> {
        self.retire(current).await;
        let owner = match current.take() {
            Some(owner) => owner,
            None if self.has_left.load(Ordering::SeqCst) => return Err(Fault::Closed),
            None => Owner::start(self.connect.clone(), self.lasts, self.claims.clone()).await?,
        };
        *self.known_lease() = Some(Arc::clone(&owner.lease));
        Ok(share_owner(current.insert(owner)))
    }

    /// Returns the owner as [`CurrentOwner::get`] does, and marks a run as requested for it, before the owner can end.
    pub(crate) async fn get_asking(&self, run: &RunId) -> Result<Held, Fault> {
        let mut current = self.current.lock().await;
        let held = self.get_or_start(&mut current).await?;
        self.claims.ask_for(run, &held.0);
        Ok(held)
    }

    /// Returns the owner if its lease has not ended. The claims of an owner whose lease has ended are lost.
    pub(crate) async fn get_live(&self) -> Option<Held> {
        let mut current = self.current.lock().await;
        self.retire(&mut current).await;
        current.as_ref().map(share_owner)
    }

    /// Returns the lease of the newest owner.
    pub(crate) fn lease(&self) -> Option<Arc<OwnerLease>> {
        self.known_lease().clone()
    }

    fn known_lease(&self) -> std::sync::MutexGuard<'_, Option<Arc<OwnerLease>>> {
        self.lease.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    async fn retire(&self, current: &mut Option<Owner>) {
        if let Some(mut over) = current.take_if(|owner| owner.lease.has_ended()) {
            self.claims.lose_all(&over.id);
            over.leave().await;
        }
    }

    /// Ends the owner for good: no other owner follows.
    pub(crate) async fn leave(&self) {
        self.has_left.store(true, Ordering::SeqCst);
        if let Some(mut owner) = self.current.lock().await.take() {
            owner.leave().await;
        }
    }
}

fn share_owner(owner: &Owner) -> Held {
    (Arc::clone(&owner.id), Arc::clone(&owner.lease))
}
