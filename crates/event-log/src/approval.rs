//! Approvals as the log keeps them, so that every process that reaches the log can decide them.

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
    /// Names the approval.
    pub id: ApprovalId,
    /// The run that waits.
    pub run: RunId,
    /// The tool that is to run.
    pub tool: Arc<str>,
    /// The arguments it would get.
    pub arguments: JsonText,
    /// JSON Schema of the data that goes with a yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<JsonText>,
    /// What a call asks that is running already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<str>>,
    /// When it was asked.
    pub requested_at: Timestamp,
    /// Until when it can be decided; for ever where there is no such time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Who may decide it.
    #[serde(skip_serializing_if = "Approvers::is_empty")]
    pub approvers: Approvers,
    /// The call it is about.
    #[serde(skip)]
    pub call_id: CallId,
    /// The event that asked it.
    #[serde(skip)]
    pub seq: u64,
}

impl OpenApproval {
    /// Makes the approval that an event of a run asked for.
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

    /// Is it too late to decide it?
    #[must_use]
    pub fn is_over(&self, at: Timestamp) -> bool {
        self.expires_at.is_some_and(|over| over <= at)
    }

    /// Says whether this may be decided by this one, at this time; for logs that keep approvals.
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

/// What a person decided about an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Decision {
    /// May the call run?
    pub approved: bool,
    /// Who says so.
    pub by: String,
    /// Why, in their words. The model reads the reason of a denial.
    pub reason: Option<String>,
    /// The arguments that the call gets instead of those that were shown; a denial has none.
    pub arguments: Option<JsonText>,
    /// The data that the approval asks for; a denial has none.
    #[serde(default)]
    pub data: Option<JsonText>,
}

impl Decision {
    /// Lets the call run.
    pub fn approve(by: impl Into<String>) -> Self {
        Self { approved: true, by: by.into(), reason: None, arguments: None, data: None }
    }

    /// Lets the call run with other arguments than those that were shown. They have to fit the schema of
    /// the tool, and what they need is asked of the policy.
    #[must_use]
    pub fn with_arguments(mut self, arguments: impl Into<JsonText>) -> Self {
        self.arguments = Some(arguments.into());
        self
    }

    /// Gives the data that the approval asks for. It has to fit the schema that the approval shows.
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

    /// Returns the text that has to be there and is blank, if one is. A decision needs no reason.
    #[must_use]
    pub fn blank(&self) -> Option<&'static str> {
        is_blank(&self.by).then_some("by")
    }

    /// Keeps the call from running; the model reads the reason. A blank reason stands for none, and the model reads
    /// that none was given.
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

    /// Adds why; a blank reason adds nothing.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into()).filter(|reason| !is_blank(reason)).or(self.reason);
        self
    }
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// What a batch does to the open approvals of its run.
#[derive(Debug, Clone, PartialEq)]
pub enum ApprovalChange {
    /// An approval was asked for.
    Asked(OpenApproval),
    /// The approval of a call needs no decision any more.
    Closed(CallId),
    /// There was no decision in time. What is decided from now on comes too late.
    Expired(ApprovalId),
    /// The run is over, and its approvals with it.
    AllClosed,
}
