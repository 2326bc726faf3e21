//! Questions to people as the log keeps them, so that anybody who can reach the log can decide.

use std::sync::Arc;

use layer0::event::ApprovalRequested;
use layer0::id::{ApprovalId, CallId, RunId};
use layer0::{JsonText, Timestamp};
use serde::{Deserialize, Serialize};

/// A question that nobody has decided.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OpenApproval {
    /// Names the question.
    pub id: ApprovalId,
    /// The run that waits.
    pub run: RunId,
    /// The tool that is to run.
    pub tool: Arc<str>,
    /// The arguments it would get.
    pub arguments: JsonText,
    /// When it was asked.
    pub requested_at: Timestamp,
    /// The call it is about.
    #[serde(skip)]
    pub call_id: CallId,
    /// The event that asked it.
    #[serde(skip)]
    pub seq: u64,
}

impl OpenApproval {
    /// Makes the question that an event of a run asked.
    #[must_use]
    pub fn new(run: RunId, seq: u64, requested_at: Timestamp, asked: ApprovalRequested) -> Self {
        let ApprovalRequested { approval_id: id, call_id, tool, arguments, .. } = asked;
        Self { id, run, tool, arguments, requested_at, call_id, seq }
    }
}

/// What a person said to a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Decision {
    /// May the call run?
    pub approved: bool,
    /// Who says so.
    pub by: String,
    /// Why, in their words. The model reads the reason of a denial.
    pub reason: Option<String>,
}

impl Decision {
    /// Lets the call run.
    pub fn approve(by: impl Into<String>) -> Self {
        Self { approved: true, by: by.into(), reason: None }
    }

    /// Returns which of its texts says nothing, if one does.
    #[must_use]
    pub fn blank(&self) -> Option<&'static str> {
        let is_blank = |text: &String| text.trim().is_empty();
        match self {
            Self { by, .. } if is_blank(by) => Some("by"),
            Self { reason: Some(reason), .. } if is_blank(reason) => Some("reason"),
            _ => None,
        }
    }

    /// Keeps the call from running; the model reads the reason.
    pub fn deny(by: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { approved: false, by: by.into(), reason: Some(reason.into()) }
    }

    /// Adds why.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }
}

/// What a batch does to the open questions of its run.
#[derive(Debug, Clone, PartialEq)]
pub enum ApprovalChange {
    /// A question was asked.
    Asked(OpenApproval),
    /// The question about a call needs no answer any more.
    Closed(CallId),
    /// The run is over, and its questions with it.
    AllClosed,
}
