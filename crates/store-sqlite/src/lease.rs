//! The lease of a claim, which lasts while the files that exclude other processes are in place.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use backstop_event_log::{ActionGuard, Claims, LogError};
use layer0::id::RunId;

use crate::owner::{Owner, OwnerFile};

/// The lease of a claim. A new run may be claimed before there is an owner: its first append creates one.
#[derive(Debug)]
pub(crate) struct FileLease {
    owner: Arc<Owner>,
    claims: Claims,
    run: RunId,
    file: OnceLock<Arc<OwnerFile>>,
}

impl FileLease {
    /// Creates the lease of a run's claim; `claims` has the claim.
    pub(crate) const fn new(owner: Arc<Owner>, claims: Claims, run: RunId) -> Self {
        Self { owner, claims, run, file: OnceLock::new() }
    }

    /// Returns whether the files under which the run was claimed are in place.
    fn holds(&self) -> bool {
        // A lost owner loses its claims before a new owner is created, so that the claims are read after the file.
        let has_file = self.file().is_none_or(|file| file.holds());
        has_file && !self.claims.is_lost(&self.run) && self.owner.database_holds()
    }

    fn file(&self) -> Option<&Arc<OwnerFile>> {
        if let Some(file) = self.file.get() {
            return Some(file);
        }
        let file = self.owner.file()?;
        Some(self.file.get_or_init(|| file))
    }
}

#[async_trait]
impl backstop_event_log::Lease for FileLease {
    fn may_start(&self) -> bool {
        self.holds()
    }

    fn at_work(&self) -> Option<ActionGuard> {
        Some(ActionGuard::new(()))
    }

    fn loss(&self, run: &RunId) -> LogError {
        match self.owner.database() {
            Some(path) if !self.owner.database_holds() => LogError::StoreLost(path.to_owned()),
            _ => LogError::LeaseEnded(run.clone()),
        }
    }

    async fn until_may_start(&self) {
        if !self.may_start() {
            // A removed file does not return.
            std::future::pending::<()>().await;
        }
    }

    async fn wait_for_end(&self) {
        let mut lost = self.owner.subscribe_to_losses();
        // The sender lives as long as the owner.
        while self.holds() && lost.changed().await.is_ok() {}
    }
}
