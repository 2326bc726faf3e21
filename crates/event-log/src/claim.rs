//! The right to write to a run.

use std::fmt;
use std::sync::Arc;

use crate::Lease;
use crate::lease::HeldLease;

/// The right to write to a run, until it is dropped or its process dies.
///
/// A claim has an epoch, a number that grows with every claim of the run. A log accepts an append only under the epoch
/// of the newest claim, so that a writer whose claim is outdated can write nothing more (fencing).
#[must_use = "the run is free again when the claim is dropped"]
pub struct Claim {
    epoch: u64,
    lease: HeldLease,
    is_takeover: bool,
    _held: Box<dyn Send + Sync>,
}

impl Claim {
    /// Epoch of a run's first claim.
    pub const FIRST: u64 = 1;

    /// Creates a claim that ends when `held` is dropped.
    pub fn new(epoch: u64, held: impl Send + Sync + 'static) -> Self {
        Self { epoch, lease: None, is_takeover: false, _held: Box::new(held) }
    }

    /// Makes the claim valid only while a lease lasts.
    pub fn under(mut self, lease: Arc<dyn Lease>) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Marks the claim as formerly held by a process that died.
    pub fn takeover(mut self) -> Self {
        self.is_takeover = true;
        self
    }

    /// Returns whether the previous process died without releasing the claim.
    #[must_use]
    pub const fn is_takeover(&self) -> bool {
        self.is_takeover
    }

    /// Returns the lease that the claim depends on, if there is one.
    #[must_use]
    pub const fn lease(&self) -> Option<&Arc<dyn Lease>> {
        self.lease.as_ref()
    }

    /// Returns the epoch, which every [`Batch`](crate::Batch) of the writer carries.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}
