//! Approvals in a log, which every process with access to the log can decide.

use std::sync::Arc;

use layer0::event::ApprovalRequested;
use layer0::id::{ApprovalId, CallId, RunId};
use layer0::{Approvers, JsonText, Timestamp, text};
use serde::{Deserialize, Serialize};

use crate::LogError;

/// An approval without a decision.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OpenApproval {
    /// Id of the approval.
    pub id: ApprovalId,
    /// The waiting run.
    pub run: RunId,
    /// The tool to run.
    pub tool: Arc<str>,
    /// The arguments of the call.
    pub arguments: JsonText,
    /// JSON Schema of the data that an approval must include.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<JsonText>,
    /// Question of a call that is already running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<str>>,
    /// Time of the request.
    pub requested_at: Timestamp,
    /// Time after which it cannot be decided; no limit if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// People who may decide it.
    #[serde(skip_serializing_if = "Approvers::is_empty")]
    pub approvers: Approvers,
    /// The tool call to approve.
    #[serde(skip)]
    pub call_id: CallId,
    /// Number of the event that requested it.
    #[serde(skip)]
    pub seq: u64,
}

impl OpenApproval {
    /// Creates the approval that an event of a run requested.
    #[must_use]
    pub fn new(run: RunId, seq: u64, requested_at: Timestamp, asked: ApprovalRequested) -> Self {
        let ApprovalRequested { approval_id: id, call_id, tool, arguments, .. } = asked;
        let (expires_at, approvers) = (asked.expires_at, asked.approvers);
        let (schema, message) = (asked.schema, asked.message);
        Self {
            id,
            run,
            tool,
            arguments,
            schema,
            message,
            requested_at,
            expires_at,
            approvers,
            call_id,
            seq,
        }
    }

    /// Returns whether the approval has expired.
    #[must_use]
    pub fn is_over(&self, at: Timestamp) -> bool {
        self.expires_at.is_some_and(|over| over <= at)
    }

    /// Checks whether this person may decide this approval at this time; for implementations of logs.
    ///
    /// # Errors
    ///
    /// [`LogError::ApprovalExpired`], [`LogError::NotApprover`].
    pub fn check(&self, by: &str, at: Timestamp) -> Result<(), LogError> {
        if self.is_over(at) {
            return Err(LogError::ApprovalExpired(self.id.clone()));
        }
        match self.approvers.allow(by) {
            true => Ok(()),
            false => Err(LogError::not_approver(self.id.clone(), by, self.approvers.clone())),
        }
    }
}

/// A person's decision about an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Decision {
    /// Whether the call may run.
    pub approved: bool,
    /// The person who decided.
    pub by: String,
    /// The reason in their words. The model reads the reason of a denial.
    pub reason: Option<String>,
    /// Arguments that replace those of the call; a denial has none.
    pub arguments: Option<JsonText>,
    /// The data that the approval requires; a denial has none.
    #[serde(default)]
    pub data: Option<JsonText>,
}

impl Decision {
    /// Allows the call.
    pub fn approve(by: impl Into<String>) -> Self {
        Self { approved: true, by: by.into(), reason: None, arguments: None, data: None }
    }

    /// Allows the call with other arguments than those shown. They must match the tool's schema, and the policy checks
    /// the capabilities that they need.
    #[must_use]
    pub fn with_arguments(mut self, arguments: impl Into<JsonText>) -> Self {
        self.arguments = Some(arguments.into());
        self
    }

    /// Adds the data that the approval requires. It must match the schema in the approval.
    ///
    /// ```
    /// # use backstop_event_log::Decision;
    /// # use serde_json::json;
    /// let decision = Decision::approve("ada").with_data(json!({"day": "2026-03-01"}));
    /// assert!(decision.approved && decision.data.is_some());
    /// ```
    #[must_use]
    pub fn with_data(mut self, data: impl Into<JsonText>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Returns the name of a required text that is blank, if any. A decision needs no reason.
    #[must_use]
    pub fn blank(&self) -> Option<&'static str> {
        is_blank(&self.by).then_some("by")
    }

    /// Denies the call; the model reads the reason. A blank reason counts as none, and the model reads that none was
    /// given.
    ///
    /// ```
    /// # use backstop_event_log::Decision;
    /// let decision = Decision::deny("ada", "");
    /// assert_eq!(decision.reason.as_deref(), Some("no reason was given"));
    /// ```
    pub fn deny(by: impl Into<String>, reason: impl Into<String>) -> Self {
        let reason = Some(reason.into()).filter(|reason| !is_blank(reason));
        let reason = reason.or_else(|| Some(text::NO_REASON.to_owned()));
        Self { approved: false, by: by.into(), reason, arguments: None, data: None }
    }

    /// Adds a reason; a blank reason adds nothing.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into()).filter(|reason| !is_blank(reason)).or(self.reason);
        self
    }
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// A change of a run's open approvals by a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum ApprovalChange {
    /// An approval was requested.
    Asked(OpenApproval),
    /// The approval of a call needs no decision any more.
    Closed(CallId),
    /// The approval expired. A later decision is refused.
    Expired(ApprovalId),
    /// The run ended, and with it its approvals.
    AllClosed,
}
