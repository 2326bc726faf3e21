//! The port of a log with inboxes.

use async_trait::async_trait;
use layer0::Timestamp;
use layer0::id::{ApprovalId, RunId};

use crate::{Decision, InboxMessage, InboxRequest, InboxWatch, LogError, OpenApproval};

/// Keeps the requests to runs, such as decisions and signals, until their writers record them.
#[async_trait]
pub trait Inbox: Send + Sync {
    /// Puts a request into the inbox of a run, if its condition holds; see [`InboxRequest`]. Otherwise returns `false`
    /// and changes nothing.
    ///
    /// The run's writer records an accepted request, now or when the run is next claimed.
    ///
    /// # Errors
    ///
    /// [`LogError::ApprovalExpired`] for a decision at or after the expiry of its approval, or once the expiry is in the
    /// inbox or recorded, whatever time the decision has. [`LogError::NotApprover`] for a person whom the approval does
    /// not name; nothing was written then. Also as [`Log::append`](crate::Log::append).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the request is accepted completely or not at all.
    async fn send(&self, request: InboxRequest, by: &str, at: Timestamp) -> Result<bool, LogError>;

    /// Returns the rows in the inbox of a run, oldest first.
    ///
    /// # Errors
    ///
    /// As [`Log::summary`](crate::Log::summary).
    async fn inbox(&self, run: &RunId) -> Result<Vec<InboxMessage>, LogError>;

    /// Watches the inbox of a run, for requests of any process.
    ///
    /// If reads of the inbox may fail, the watch is ready again within seconds while there is a row, so that a writer
    /// whose read failed reads again.
    fn watch_inbox(&self, run: &RunId) -> InboxWatch;

    /// Lists the approvals that are open and undecided, by the time of their request, oldest first. An approval whose
    /// decision or expiry is in an inbox is decided.
    ///
    /// # Errors
    ///
    /// As [`Log::summary`](crate::Log::summary).
    async fn open_approvals(&self) -> Result<Vec<OpenApproval>, LogError>;

    /// Decides an approval, as [`Inbox::send`] does.
    ///
    /// # Errors
    ///
    /// As [`Inbox::send`].
    async fn decide(
        &self,
        id: &ApprovalId,
        decision: Decision,
        at: Timestamp,
    ) -> Result<bool, LogError> {
        let by = decision.by.clone();
        self.send(InboxRequest::Decide { approval: id.clone(), decision }, &by, at).await
    }
}
