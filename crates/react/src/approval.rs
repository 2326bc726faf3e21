//! Asking people whether a call may run.

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
    /// Decides an approval; `None` leaves it open. A run with nothing else to do then ends as
    /// waiting.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when the run is stopped.
    async fn decide(&self, request: &ApprovalRequest) -> Option<Decision>;

    /// Learns that its decision was refused, and why. It is asked again right after, up to ten times in all; then
    /// the approval stays open.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when the run is stopped.
    async fn refused(&self, _request: &ApprovalRequest, _why: &DecideError) {}
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
    /// The call, its arguments and what the decision is bound to; until when it can be decided, and by
    /// whom.
    pub approval: Approval,
    /// JSON Schema that other arguments have to fit; that of the data which is asked for stands in the approval.
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

    /// Says whether this decision may be taken.
    ///
    /// # Errors
    ///
    /// [`DecideError::Blank`] when nothing says who decides;
    /// [`DecideError::NotApprover`] for one who may not; [`DecideError::Arguments`] for arguments that do
    /// not fit the tool's schema; [`DecideError::Data`] for data that does not fit what the approval asks for;
    /// [`DecideError::UnaskedData`] where it asks for none.
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

/// Keeps approvals until they are decided in this process, such as by the handler of a web page.
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
    /// As [`ApprovalDesk::decide`].
    pub fn approve(&self, id: &ApprovalId, by: impl Into<String>) -> Result<(), DecideError> {
        self.decide(id, Decision::approve(by))
    }

    /// Keeps a call from running; the model reads the reason.
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

    /// Decides an approval; one that is approved may get other arguments, and has the data that is asked for.
    ///
    /// # Errors
    ///
    /// [`DecideError::NotFound`], when the id is unknown, decided already or expired; then, and otherwise
    /// as [`ApprovalRequest::check`], nothing has changed.
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
