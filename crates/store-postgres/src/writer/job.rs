//! What is written, and with what.

use std::sync::Arc;
use std::time::Duration;

use backstop_event_log::{Claims, LogError};
use layer0::id::RunId;
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};

use crate::append::Append;
use crate::connect::Connect;
use crate::current_owner::CurrentOwner;
use crate::lookout::Watches;

/// Something to write, and where the answer goes.
pub(super) enum Job {
    Append(Box<Append>, oneshot::Sender<Result<(), LogError>>),
    /// Frees a run that was claimed under this epoch; without one, a run whose claim is not waited for.
    Release(RunId, Option<u64>),
}

pub(super) struct Queued {
    pub(super) job: Job,
    pub(super) _permit: Option<OwnedSemaphorePermit>,
}

/// What the writer needs of its database.
pub(crate) struct Setup {
    pub(crate) connect: Connect,
    pub(crate) patience: Duration,
    pub(crate) claims: Claims,
    pub(crate) owner: Arc<CurrentOwner>,
    pub(crate) watches: Watches,
    /// Is told that there is something new for other processes.
    pub(crate) notify: Arc<Notify>,
}
