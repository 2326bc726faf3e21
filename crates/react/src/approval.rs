//! Decisions of people on tool calls that need approval.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use backstop_event_log::Decision;
use backstop_react_machine::Approval;
use layer0::id::{ApprovalId, RunId, SessionId};
use layer0::{JsonText, Timestamp};
use tokio::sync::oneshot;

use crate::decide_error::{ApprovalNotFound, DecideError, check_arguments, check_sent_data};

/// Decides approvals while their run is in this process.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Decides an approval; `None` leaves it open. A run with nothing else to do then ends as waiting.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when the run is stopped.
    async fn decide(&self, request: &ApprovalRequest) -> Option<Decision>;

    /// Receives the refusal of its decision, with the reason. It is asked again right after, up to ten times in all;
    /// then the approval stays open.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when the run is stopped.
    async fn receive_refusal(&self, _request: &ApprovalRequest, _why: &DecideError) {}
}

/// An approval, with its run.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// The run that waits.
    pub run: RunId,
    /// Its session.
    pub session: SessionId,
    /// Time of the request.
    pub at: Timestamp,
    /// The call, its arguments and the data that the decision is bound to; the deadline of the decision and the people
    /// who may make it.
    pub approval: Approval,
    /// JSON Schema of changed arguments; the schema of the requested data is part of the approval.
    pub schema: JsonText,
}

impl ApprovalRequest {
    pub(crate) const fn new(
        run: RunId,
        session: SessionId,
        at: Timestamp,
        approval: Approval,
        schema: JsonText,
    ) -> Self {
        Self { run, session, at, approval, schema }
    }

    /// Checks whether this decision is accepted.
    ///
    /// # Errors
    ///
    /// [`DecideError::Blank`] if the decision names nobody; [`DecideError::NotApprover`] for a person who may not
    /// decide; [`DecideError::Arguments`] for arguments that do not fit the tool's schema; [`DecideError::Data`] for
    /// data that does not fit the approval's schema; [`DecideError::UnaskedData`] for data without a schema.
    pub fn check(&self, decision: &Decision) -> Result<(), DecideError> {
        let Approval { id, approvers, .. } = &self.approval;
        if let Some(what) = decision.blank() {
            return Err(DecideError::Blank(what));
        }
        if !approvers.allow(&decision.by) {
            return Err(DecideError::not_approver(id.clone(), &decision.by, approvers.clone()));
        }
        check_sent_data(self.approval.schema.as_ref(), decision)?;
        match &decision.arguments {
            Some(_) if self.approval.is_asked_by_call() => Err(DecideError::running()),
            Some(arguments) => check_arguments(&self.schema, arguments),
            None => Ok(()),
        }
    }
}

/// An approver that keeps approvals until they are decided in this process, such as by the handler of a web page.
/// Clones share them.
///
/// ```
/// # use backstop_react::{ApprovalDesk, DecideError};
/// let desk = ApprovalDesk::default();
/// // Agent::builder(provider).approver(desk.clone()) …
/// assert!(desk.open().is_empty());
/// assert!(matches!(desk.approve(&"apr_0".into(), "ops"), Err(DecideError::NotFound(_))));
/// ```
#[derive(Debug, Clone, Default)]
pub struct ApprovalDesk {
    open: Arc<Mutex<BTreeMap<ApprovalId, UndecidedApproval>>>,
}

#[derive(Debug)]
struct UndecidedApproval {
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

    /// Approves a call.
    ///
    /// # Errors
    ///
    /// As [`ApprovalDesk::decide`].
    pub fn approve(&self, id: &ApprovalId, by: impl Into<String>) -> Result<(), DecideError> {
        self.decide(id, Decision::approve(by))
    }

    /// Denies a call; the model reads the reason.
    ///
    /// # Errors
    ///
    /// As [`ApprovalDesk::decide`].
    pub fn deny(
        &self,
        id: &ApprovalId,
        by: impl Into<String>,
        reason: impl Into<String>,
    ) -> Result<(), DecideError> {
        self.decide(id, Decision::deny(by, reason))
    }

    /// Decides an approval. An approval of the call may change its arguments, and has the requested data.
    ///
    /// # Errors
    ///
    /// [`DecideError::NotFound`], if the id is unknown, decided already or expired; and as [`ApprovalRequest::check`].
    /// In both cases nothing has changed.
    pub fn decide(&self, id: &ApprovalId, decision: Decision) -> Result<(), DecideError> {
        if let Some(what) = decision.blank() {
            return Err(DecideError::Blank(what));
        }
        let not_found = || ApprovalNotFound::new(id.clone());
        let mut all = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(id).ok_or_else(not_found)?.request.check(&decision)?;
        let decided = all.remove(id).and_then(|open| open.decided.send(decision).ok());
        decided.ok_or_else(|| not_found().into())
    }
}

#[async_trait]
impl Approver for ApprovalDesk {
    async fn decide(&self, request: &ApprovalRequest) -> Option<Decision> {
        let id = request.approval.id.clone();
        let (decided, decision) = oneshot::channel();
        let open = UndecidedApproval { request: request.clone(), decided };
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), open);
        let _gone = Gone { desk: self, id };
        decision.await.ok()
    }
}

/// Guard of an open approval: when dropped, removes the approval from the desk, because its run no longer waits.
struct Gone<'a> {
    desk: &'a ApprovalDesk,
    id: ApprovalId,
}

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.desk.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}
