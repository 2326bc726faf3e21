//! Asking people whether a call may run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use event_log::Decision;
use layer0::Timestamp;
use layer0::code;
use layer0::failure::{Effect, Failure, Retry};
use layer0::id::{ApprovalId, RunId, SessionId};
use react_machine::Approval;
use thiserror::Error;
use tokio::sync::oneshot;

/// Decides questions about tool calls while their run is in this process.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Decides a question; `None` leaves it open. A run with nothing else to do then ends as
    /// waiting.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when the run is stopped.
    async fn decide(&self, request: &ApprovalRequest) -> Option<Decision>;
}

/// A question, and whose run it comes from.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// The run that waits.
    pub run: RunId,
    /// Its conversation.
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

/// Keeps questions until somebody in this process decides them, such as the handler of a web page.
/// Clones share the questions.
///
/// ```
/// # use react::{ApprovalDesk, ApprovalNotFound};
/// let desk = ApprovalDesk::default();
/// // Agent::builder(provider).approver(desk.clone()) …
/// assert!(desk.open().is_empty());
/// assert!(matches!(desk.approve(&"apr_0".into(), "ops"), Err(ApprovalNotFound { .. })));
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

/// Says that no open question has this id: it never had, or somebody decided it already.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no open approval `{id}`")]
#[non_exhaustive]
pub struct ApprovalNotFound {
    /// The id.
    pub id: ApprovalId,
}

impl ApprovalNotFound {
    /// Makes the error.
    #[must_use]
    pub const fn new(id: ApprovalId) -> Self {
        Self { id }
    }
}

impl Failure for ApprovalNotFound {
    fn code(&self) -> &'static str {
        code::INPUT_INVALID
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }

    fn effect(&self) -> Effect {
        Effect::None
    }
}

impl ApprovalDesk {
    /// Returns the open questions, in the order of their ids.
    #[must_use]
    pub fn open(&self) -> Vec<ApprovalRequest> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.values().map(|open| open.request.clone()).collect()
    }

    /// Lets a call run.
    ///
    /// # Errors
    ///
    /// [`ApprovalNotFound`], when the id is unknown or decided already.
    pub fn approve(&self, id: &ApprovalId, by: impl Into<String>) -> Result<(), ApprovalNotFound> {
        self.decide(id, Decision::approve(by))
    }

    /// Keeps a call from running; the model reads the reason.
    ///
    /// # Errors
    ///
    /// As [`ApprovalDesk::approve`].
    pub fn deny(
        &self,
        id: &ApprovalId,
        by: impl Into<String>,
        reason: impl Into<String>,
    ) -> Result<(), ApprovalNotFound> {
        self.decide(id, Decision::deny(by, reason))
    }

    fn decide(&self, id: &ApprovalId, decision: Decision) -> Result<(), ApprovalNotFound> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        let decided = open.and_then(|open| open.decided.send(decision).ok());
        decided.ok_or_else(|| ApprovalNotFound::new(id.clone()))
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

/// Takes a question off the desk when its run no longer waits for it.
struct Gone<'a> {
    desk: &'a ApprovalDesk,
    id: ApprovalId,
}

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.desk.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}
