//! Jobs of the writer, and its parts of the database.

use std::sync::Arc;
use std::time::Duration;

use backstop_event_log::{Claims, LogError};
use layer0::id::RunId;
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};

use crate::append::Append;
use crate::connect::Connect;
use crate::current_owner::CurrentOwner;
use crate::lookout::Watches;

/// A job of the writer, with the channel for its answer.
pub(super) enum Job {
    Append(Box<Append>, oneshot::Sender<Result<(), LogError>>),
    /// Releases a run that was claimed under this epoch; without an epoch, a run whose claim nobody waits for any more.
    Release(RunId, Option<u64>),
}

pub(super) struct Queued {
    pub(super) job: Job,
    pub(super) _permit: Option<OwnedSemaphorePermit>,
}

/// The parts of the database that the writer uses.
pub(crate) struct WriterSetup {
    pub(crate) connect: Connect,
    pub(crate) patience: Duration,
    pub(crate) claims: Claims,
    pub(crate) owner: Arc<CurrentOwner>,
    pub(crate) watches: Watches,
    /// Notified when there is news for other processes.
    pub(crate) notify: Arc<Notify>,
}
