//! Tool calls, approvals, and what is stored of them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::approvers::Approvers;
use crate::code::Code;
use crate::id::{ApprovalId, CallId, ErrorId, ResultId};
use crate::json_text::JsonText;
use crate::time::Timestamp;

/// Why a tool call failed, as the log says it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolFailure {
    /// Our code.
    pub reason: Code,
    /// The tool author's code.
    pub code: Option<Arc<str>>,
    /// One line for people.
    pub message: Arc<str>,
    /// Where the whole error is stored.
    pub error_id: Option<ErrorId>,
}

payload! {
    /// A tool may have begun.
    ToolRequested {
        /// The call.
        call_id: CallId,
        /// The tool.
        tool: Arc<str>,
        /// The arguments it got.
        arguments: JsonText,
        /// Which execution of the run: 1, 2, ….
        execution: u32,
    }
}

payload! {
    /// The runtime tries a tool again.
    ToolAttempted {
        /// The call.
        call_id: CallId,
        /// Which execution.
        execution: u32,
        /// The code of the failure.
        reason: Code,
        /// What the tool said, on one line.
        #[serde(default)]
        message: Arc<str>,
        /// The wait that follows, in milliseconds.
        delay_ms: u64,
    }
}

payload! {
    /// A tool call was answered.
    ToolResponded {
        /// The call.
        call_id: CallId,
        /// The tool.
        tool: Arc<str>,
        /// Did it succeed?
        ok: bool,
        /// The output, or `{"error": text}` with the text the model reads.
        output: JsonText,
        /// How long it ran; zero when it did not.
        duration_ms: u64,
        /// Why it failed.
        error: Option<ToolFailure>,
    }
}

impl ToolResponded {
    /// Answers a call that did not run: `reason` says why, `text` is what the model reads.
    #[must_use]
    pub fn refused(call_id: CallId, tool: Arc<str>, reason: &'static str, text: &str) -> Self {
        let error = ToolFailure {
            reason: Code::new(reason),
            code: None,
            message: text.into(),
            error_id: None,
        };
        Self::failed(call_id, tool, text, 0, error)
    }

    /// Answers a call that failed: `text` is what the model reads.
    #[must_use]
    pub fn failed(
        call_id: CallId,
        tool: Arc<str>,
        text: &str,
        duration_ms: u64,
        error: ToolFailure,
    ) -> Self {
        let output = json!({ "error": text }).into();
        Self { call_id, tool, ok: false, output, duration_ms, error: Some(error) }
    }
}

payload! {
    /// A tool that was given up answered after all; its output was discarded.
    ToolLate {
        /// The call.
        call_id: CallId,
        /// Which execution.
        execution: u32,
    }
}

payload! {
    /// A person is asked.
    ApprovalRequested {
        /// The approval.
        approval_id: ApprovalId,
        /// The call it is about.
        call_id: CallId,
        /// The tool.
        tool: Arc<str>,
        /// The arguments shown.
        arguments: JsonText,
        /// What the decision is bound to.
        arguments_hash: Arc<str>,
        /// Until when it can be decided; for ever where it does not say.
        #[serde(default)]
        expires_at: Option<Timestamp>,
        /// Who may decide it.
        #[serde(default)]
        approvers: Approvers,
    }
}

payload! {
    /// A person agreed.
    ApprovalGranted {
        /// The approval.
        approval_id: ApprovalId,
        /// The call it is about.
        call_id: CallId,
        /// Who.
        by: Arc<str>,
        /// `null` or a code.
        reason: Option<Code>,
        /// The person's words.
        message: Option<Arc<str>>,
        /// The arguments that the call gets instead of those that were shown.
        #[serde(default)]
        arguments: Option<JsonText>,
    }
}

payload! {
    /// A person declined, or there was no decision in time.
    ApprovalDenied {
        /// The approval.
        approval_id: ApprovalId,
        /// The call it is about.
        call_id: CallId,
        /// Who.
        by: Arc<str>,
        /// The code, `approval.denied` or `approval.expired`.
        reason: Code,
        /// The person's words.
        message: Option<Arc<str>>,
    }
}

payload! {
    /// An error was stored.
    ErrorStored {
        /// Its id.
        error_id: ErrorId,
        /// The call it came from.
        call_id: CallId,
        /// The tool.
        tool: Arc<str>,
        /// The tool author's code.
        code: Option<Arc<str>>,
        /// How often it was seen in the session.
        occurrences: u64,
        /// Characters kept from the model.
        chars_kept: u64,
    }
}

payload! {
    /// An error could not be stored; the model got a cut text.
    ErrorStoreDegraded {
        /// `store` or `get`.
        operation: Arc<str>,
        /// The code.
        reason: Code,
        /// What happened.
        message: Arc<str>,
    }
}

payload! {
    /// A large result was stored.
    ResultStored {
        /// Its id.
        result_id: ResultId,
        /// The call it came from.
        call_id: CallId,
        /// Its size.
        bytes: u64,
    }
}
