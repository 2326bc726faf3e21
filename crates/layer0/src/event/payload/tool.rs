//! Tool calls, approvals, and stored errors and results.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::approvers::Approvers;
use crate::code::{self, Code};
use crate::event::payload::settlement::Verdict;
use crate::id::{ApprovalId, CallId, ErrorId, ResultId, RunId};
use crate::json_text::JsonText;
use crate::message::Image;
use crate::text;
use crate::time::Timestamp;

/// The recorded reason that a tool call failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolFailure {
    /// Backstop's code.
    pub reason: Code,
    /// The code of the tool's author.
    pub code: Option<Arc<str>>,
    /// One line for people; for an interruption with its cause, such as the end of a server.
    pub message: Arc<str>,
    /// The id of the stored error.
    pub error_id: Option<ErrorId>,
}

impl ToolFailure {
    /// Creates a failure that is not stored, without a code of the tool's author.
    #[must_use]
    pub fn new(reason: impl Into<Code>, message: impl Into<Arc<str>>) -> Self {
        Self { reason: reason.into(), message: message.into(), code: None, error_id: None }
    }
}

payload! {
    /// A tool execution starts; the tool may have begun.
    ToolRequested {
        /// The call.
        call_id: CallId,
        /// The tool.
        tool: Arc<str>,
        /// The arguments of the execution.
        arguments: JsonText,
        /// The number of the execution in the run: 1, 2, ….
        execution: u32,
    }
}

impl ToolRequested {
    /// Creates the event for an execution with its arguments.
    #[must_use]
    pub fn new(
        call_id: impl Into<CallId>,
        tool: impl Into<Arc<str>>,
        arguments: impl Into<JsonText>,
        execution: u32,
    ) -> Self {
        Self { call_id: call_id.into(), tool: tool.into(), arguments: arguments.into(), execution }
    }
}

payload! {
    /// The runtime retries a tool call.
    ToolAttempted {
        /// The call.
        call_id: CallId,
        /// The number of the execution.
        execution: u32,
        /// The code of the failure.
        reason: Code,
        /// The tool's message, on one line.
        #[serde(default)]
        message: Arc<str>,
        /// The wait before the retry, in milliseconds.
        delay_ms: u64,
    }
}

impl ToolAttempted {
    /// Creates the event for a failed execution, with the wait before the retry.
    #[must_use]
    pub fn new(
        call_id: impl Into<CallId>,
        execution: u32,
        reason: impl Into<Code>,
        message: impl Into<Arc<str>>,
        delay_ms: u64,
    ) -> Self {
        Self {
            call_id: call_id.into(),
            execution,
            reason: reason.into(),
            message: message.into(),
            delay_ms,
        }
    }
}

/// An earlier call whose answer is reused, because its tool performs such a call only once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DoneBefore {
    /// The run of the call.
    pub run: RunId,
    /// The call.
    pub call_id: CallId,
}

impl DoneBefore {
    /// Creates the reference to a call.
    #[must_use]
    pub const fn new(run: RunId, call_id: CallId) -> Self {
        Self { run, call_id }
    }
}

payload! {
    /// A tool call was answered.
    ToolResponded {
        /// The call.
        call_id: CallId,
        /// The tool.
        tool: Arc<str>,
        /// Whether it succeeded.
        ok: bool,
        /// The output, or `{"error": text}` with the text for the model.
        output: JsonText,
        /// The images that the tool shows in addition to its output.
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        images: Arc<[Image]>,
        /// The standard error of a command that succeeded; the model reads it after the output.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stderr: Option<Arc<str>>,
        /// The call that this answer is reused from, if the tool performs such calls only once; the model reads it
        /// after the output.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        done_before: Option<Box<DoneBefore>>,
        /// The duration of the execution, in milliseconds; zero if it did not run.
        duration_ms: u64,
        /// The reason of the failure.
        error: Option<ToolFailure>,
    }
}

impl ToolResponded {
    /// Creates the answer of a successful call.
    #[must_use]
    pub fn success(
        call_id: impl Into<CallId>,
        tool: impl Into<Arc<str>>,
        output: impl Into<JsonText>,
        duration_ms: u64,
    ) -> Self {
        let (call_id, tool, output) = (call_id.into(), tool.into(), output.into());
        let (images, stderr, done_before, error) = (Arc::default(), None, None, None);
        Self { call_id, tool, ok: true, output, images, stderr, done_before, duration_ms, error }
    }

    /// Sets the earlier call that this answer is reused from.
    #[must_use]
    pub fn done_before(mut self, before: Option<DoneBefore>) -> Self {
        self.done_before = before.map(Box::new);
        self
    }

    /// Adds standard error after the output.
    #[must_use]
    pub fn stderr(mut self, stderr: Option<Arc<str>>) -> Self {
        self.stderr = stderr;
        self
    }

    /// Adds these images to the output.
    #[must_use]
    pub fn images(mut self, images: impl Into<Arc<[Image]>>) -> Self {
        self.images = images.into();
        self
    }

    /// Creates the answer of a call that did not run, with the code `reason` and the text for the model.
    #[must_use]
    pub fn refusal(call_id: CallId, tool: Arc<str>, reason: &'static str, text: &str) -> Self {
        Self::failure(call_id, tool, text, 0, ToolFailure::new(reason, text))
    }

    /// Creates the answer of a call after a verdict on its unknown outcome.
    #[must_use]
    pub fn from_verdict(
        call_id: CallId,
        tool: Arc<str>,
        verdict: Verdict,
        output: Option<JsonText>,
    ) -> Self {
        let text = match verdict {
            Verdict::Happened => {
                let output = output.unwrap_or_else(|| JsonText::string(text::HAPPENED));
                return Self::success(call_id, tool, output, 0);
            }
            Verdict::DidNot => text::DID_NOT_HAPPEN,
            Verdict::Unknown => text::INTERRUPTED,
        };
        Self::refusal(call_id, tool, code::TOOL_INTERRUPTED, text)
    }

    /// Creates the answer of a failed call, with the text for the model.
    #[must_use]
    pub fn failure(
        call_id: CallId,
        tool: Arc<str>,
        text: &str,
        duration_ms: u64,
        error: ToolFailure,
    ) -> Self {
        let output = json!({ "error": text }).into();
        let (images, stderr, done_before, error) = (Arc::default(), None, None, Some(error));
        Self { call_id, tool, ok: false, output, images, stderr, done_before, duration_ms, error }
    }
}

payload! {
    /// A tool answered after its timeout or cancellation; its output was discarded.
    ToolLate {
        /// The call.
        call_id: CallId,
        /// The number of the execution.
        execution: u32,
    }
}

impl ToolLate {
    /// Creates the event for a late execution.
    #[must_use]
    pub fn new(call_id: impl Into<CallId>, execution: u32) -> Self {
        Self { call_id: call_id.into(), execution }
    }
}

payload! {
    /// An approval was requested.
    ApprovalRequested {
        /// The approval.
        approval_id: ApprovalId,
        /// The call to approve.
        call_id: CallId,
        /// The tool.
        tool: Arc<str>,
        /// The arguments shown to the person.
        arguments: JsonText,
        /// The hash of the arguments, to which the decision is bound.
        arguments_hash: Arc<str>,
        /// JSON Schema of the data that a grant requires; null if it requires none.
        #[serde(default)]
        schema: Option<JsonText>,
        /// The question of a running call, in its tool's words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<Arc<str>>,
        /// The time until which it can be decided; null if there is no limit.
        #[serde(default)]
        expires_at: Option<Timestamp>,
        /// The people who may decide it.
        #[serde(default)]
        approvers: Approvers,
    }
}

impl ApprovalRequested {
    /// Creates a request that any person may decide, without a time limit.
    #[must_use]
    pub fn new(
        approval_id: impl Into<ApprovalId>,
        call_id: impl Into<CallId>,
        tool: impl Into<Arc<str>>,
        arguments: impl Into<JsonText>,
        arguments_hash: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            approval_id: approval_id.into(),
            call_id: call_id.into(),
            tool: tool.into(),
            arguments: arguments.into(),
            arguments_hash: arguments_hash.into(),
            schema: None,
            message: None,
            expires_at: None,
            approvers: Approvers::default(),
        }
    }
}

payload! {
    /// A person granted an approval.
    ApprovalGranted {
        /// The approval.
        approval_id: ApprovalId,
        /// The call of the approval.
        call_id: CallId,
        /// The person or program that decided.
        by: Arc<str>,
        /// `null` or a code.
        reason: Option<Code>,
        /// The person's message.
        message: Option<Arc<str>>,
        /// The arguments that replace the shown ones.
        #[serde(default)]
        arguments: Option<JsonText>,
        /// The requested data.
        #[serde(default)]
        data: Option<JsonText>,
    }
}

impl ApprovalGranted {
    /// Creates a grant without a message, for the shown arguments.
    #[must_use]
    pub fn new(
        approval_id: impl Into<ApprovalId>,
        call_id: impl Into<CallId>,
        by: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            approval_id: approval_id.into(),
            call_id: call_id.into(),
            by: by.into(),
            reason: None,
            message: None,
            arguments: None,
            data: None,
        }
    }
}

payload! {
    /// A person denied an approval, or it expired.
    ApprovalDenied {
        /// The approval.
        approval_id: ApprovalId,
        /// The call of the approval.
        call_id: CallId,
        /// The person or program that decided.
        by: Arc<str>,
        /// The code: `approval.denied`, `approval.expired`, or the end of the call that asked.
        reason: Code,
        /// The person's message.
        message: Option<Arc<str>>,
    }
}

impl ApprovalDenied {
    /// Creates a denial without a message.
    #[must_use]
    pub fn new(
        approval_id: impl Into<ApprovalId>,
        call_id: impl Into<CallId>,
        by: impl Into<Arc<str>>,
        reason: impl Into<Code>,
    ) -> Self {
        Self {
            approval_id: approval_id.into(),
            call_id: call_id.into(),
            by: by.into(),
            reason: reason.into(),
            message: None,
        }
    }
}

payload! {
    /// An error was stored.
    ErrorStored {
        /// The error's id.
        error_id: ErrorId,
        /// The call that failed.
        call_id: CallId,
        /// The tool.
        tool: Arc<str>,
        /// The code of the tool's author.
        code: Option<Arc<str>>,
        /// The number of occurrences in the session.
        occurrences: u64,
        /// The number of characters omitted for the model.
        chars_kept: u64,
    }
}

impl ErrorStored {
    /// Creates the event for a stored error without a code of the tool's author.
    #[must_use]
    pub fn new(
        error_id: impl Into<ErrorId>,
        call_id: impl Into<CallId>,
        tool: impl Into<Arc<str>>,
        occurrences: u64,
        chars_kept: u64,
    ) -> Self {
        Self {
            error_id: error_id.into(),
            call_id: call_id.into(),
            tool: tool.into(),
            occurrences,
            chars_kept,
            code: None,
        }
    }
}

payload! {
    /// An error could not be stored; the model got a truncated text.
    ErrorStoreDegraded {
        /// `store` or `get`.
        operation: Arc<str>,
        /// The code.
        reason: Code,
        /// The description of the failure.
        message: Arc<str>,
    }
}

impl ErrorStoreDegraded {
    /// Creates the event for a failed operation, `store` or `get`.
    #[must_use]
    pub fn new(
        operation: impl Into<Arc<str>>,
        reason: impl Into<Code>,
        message: impl Into<Arc<str>>,
    ) -> Self {
        Self { operation: operation.into(), reason: reason.into(), message: message.into() }
    }
}

payload! {
    /// A large result was stored.
    ResultStored {
        /// The result's id.
        result_id: ResultId,
        /// The call of the result.
        call_id: CallId,
        /// The result's size, in bytes.
        bytes: u64,
    }
}

impl ResultStored {
    /// Creates the event for a stored result, with its size.
    #[must_use]
    pub fn new(result_id: impl Into<ResultId>, call_id: impl Into<CallId>, bytes: u64) -> Self {
        Self { result_id: result_id.into(), call_id: call_id.into(), bytes }
    }
}
