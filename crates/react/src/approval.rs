//! Asking people whether a call may run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use event_log::Decision;
use layer0::Timestamp;
use layer0::id::{ApprovalId, RunId, SessionId};
use react_machine::Approval;
use tokio::sync::oneshot;

use crate::decide_error::{ApprovalNotFound, DecideError};

/// Decides approvals while their run is in this process.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Decides an approval; `None` leaves it open. A run with nothing else to do then ends as
    /// waiting.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when the run is stopped.
    async fn decide(&self, request: &ApprovalRequest) -> Option<Decision>;
}

/// An approval, and the run it comes from.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// The run that waits.
    pub run: RunId,
    /// Its session.
    pub session: SessionId,
    /// When it was asked.
    pub at: Timestamp,
    /// The call, its arguments and what the decision is bound to.
    pub approval: Approval,
}

impl ApprovalRequest {
    pub(crate) const fn new(
        run: RunId,
        session: SessionId,
        at: Timestamp,
        approval: Approval,
    ) -> Self {
        Self { run, session, at, approval }
    }
}

/// Keeps approvals until they are decided in this process, such as by the handler of a web page.
/// Clones share them.
///
/// ```
/// # use react::{ApprovalDesk, DecideError};
/// let desk = ApprovalDesk::default();
/// // Agent::builder(provider).approver(desk.clone()) …
/// assert!(desk.open().is_empty());
/// assert!(matches!(desk.approve(&"apr_0".into(), "ops"), Err(DecideError::NotFound(_))));
/// ```
#[derive(Debug, Clone, Default)]
pub struct ApprovalDesk {
    open: Arc<Mutex<BTreeMap<ApprovalId, Open>>>,
}

#[derive(Debug)]
struct Open {
    request: ApprovalRequest,
    decided: oneshot::Sender<Decision>,
}

impl ApprovalDesk {
    /// Returns the open approvals, in the order of their ids.
    #[must_use]
    pub fn open(&self) -> Vec<ApprovalRequest> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.values().map(|open| open.request.clone()).collect()
    }

    /// Lets a call run.
    ///
    /// # Errors
    ///
    /// [`DecideError::NotFound`], when the id is unknown or decided already; [`DecideError::Blank`], when
    /// nothing says who decides.
    pub fn approve(&self, id: &ApprovalId, by: impl Into<String>) -> Result<(), DecideError> {
        self.decide(id, Decision::approve(by))
    }

    /// Keeps a call from running; the model reads the reason.
    ///
    /// # Errors
    ///
    /// As [`ApprovalDesk::approve`]; [`DecideError::Blank`] for a reason that says nothing, too.
    pub fn deny(
        &self,
        id: &ApprovalId,
        by: impl Into<String>,
        reason: impl Into<String>,
    ) -> Result<(), DecideError> {
        self.decide(id, Decision::deny(by, reason))
    }

    fn decide(&self, id: &ApprovalId, decision: Decision) -> Result<(), DecideError> {
        if let Some(what) = decision.blank() {
            return Err(DecideError::Blank(what));
        }
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        let decided = open.and_then(|open| open.decided.send(decision).ok());
        decided.ok_or_else(|| ApprovalNotFound::new(id.clone()).into())
    }
}

#[async_trait]
impl Approver for ApprovalDesk {
    async fn decide(&self, request: &ApprovalRequest) -> Option<Decision> {
        let id = request.approval.id.clone();
        let (decided, decision) = oneshot::channel();
        let open = Open { request: request.clone(), decided };
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), open);
        let _gone = Gone { desk: self, id };
        decision.await.ok()
    }
}

/// Takes an approval off the desk when its run no longer waits for it.
struct Gone<'a> {
    desk: &'a ApprovalDesk,
    id: ApprovalId,
}

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.desk.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}
