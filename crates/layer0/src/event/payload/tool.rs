//! Tool calls, approvals, and what is stored of them.

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

/// The reason a tool call failed, as the log records it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolFailure {
    /// Our code.
    pub reason: Code,
    /// The tool author's code.
    pub code: Option<Arc<str>>,
    /// One line for people; of an interruption also its cause, such as how a server ended.
    pub message: Arc<str>,
    /// The id of the stored error.
    pub error_id: Option<ErrorId>,
}

impl ToolFailure {
    /// Makes a failure that is not stored, and for which the tool has no code.
    #[must_use]
    pub fn new(reason: impl Into<Code>, message: impl Into<Arc<str>>) -> Self {
        Self { reason: reason.into(), message: message.into(), code: None, error_id: None }
    }
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
        /// The number of the execution in the run: 1, 2, ….
        execution: u32,
    }
}

impl ToolRequested {
    /// States which call it is, and what the tool gets.
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
    /// The runtime tries a tool again.
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
        /// The wait that follows, in milliseconds.
        delay_ms: u64,
    }
}

impl ToolAttempted {
    /// Takes the reason an execution failed, and the runtime's wait.
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

/// The call whose answer another one is given, because its tool makes such calls once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DoneBefore {
    /// Its run.
    pub run: RunId,
    /// The call.
    pub call_id: CallId,
}

impl DoneBefore {
    /// Names the call.
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
        /// The output, or `{"error": text}` with the text the model reads.
        output: JsonText,
        /// The images that the tool shows in addition to its output.
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        images: Arc<[Image]>,
        /// The standard error of a command that succeeded; the model reads it after the output.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stderr: Option<Arc<str>>,
        /// The call whose answer this is, where the tool makes such calls once; the model reads it after the output.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        done_before: Option<Box<DoneBefore>>,
        /// The time it ran; zero if it did not.
        duration_ms: u64,
        /// The reason it failed.
        error: Option<ToolFailure>,
    }
}

impl ToolResponded {
    /// Answers a call that succeeded.
    #[must_use]
    pub fn succeeded(
        call_id: impl Into<CallId>,
        tool: impl Into<Arc<str>>,
        output: impl Into<JsonText>,
        duration_ms: u64,
    ) -> Self {
        let (call_id, tool, output) = (call_id.into(), tool.into(), output.into());
        let (images, stderr, done_before, error) = (Arc::default(), None, None, None);
        Self { call_id, tool, ok: true, output, images, stderr, done_before, duration_ms, error }
    }

    /// States that this is the answer of another call.
    #[must_use]
    pub fn done_before(mut self, before: Option<DoneBefore>) -> Self {
        self.done_before = before.map(Box::new);
        self
    }

    /// Shows standard error after the output.
    #[must_use]
    pub fn stderr(mut self, stderr: Option<Arc<str>>) -> Self {
        self.stderr = stderr;
        self
    }

    /// Shows these images in addition to the output.
    #[must_use]
    pub fn images(mut self, images: impl Into<Arc<[Image]>>) -> Self {
        self.images = images.into();
        self
    }

    /// Answers a call that did not run: `reason` is the code, `text` is for the model.
    #[must_use]
    pub fn refused(call_id: CallId, tool: Arc<str>, reason: &'static str, text: &str) -> Self {
        Self::failed(call_id, tool, text, 0, ToolFailure::new(reason, text))
    }

    /// Answers a call whose outcome was unknown, now that it is known whether it happened.
    #[must_use]
    pub fn settled(
        call_id: CallId,
        tool: Arc<str>,
        verdict: Verdict,
        output: Option<JsonText>,
    ) -> Self {
        let text = match verdict {
            Verdict::Happened => {
                let output = output.unwrap_or_else(|| JsonText::string(text::HAPPENED));
                return Self::succeeded(call_id, tool, output, 0);
            }
            Verdict::DidNot => text::DID_NOT_HAPPEN,
            Verdict::Unknown => text::INTERRUPTED,
        };
        Self::refused(call_id, tool, code::TOOL_INTERRUPTED, text)
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
        let (images, stderr, done_before, error) = (Arc::default(), None, None, Some(error));
        Self { call_id, tool, ok: false, output, images, stderr, done_before, duration_ms, error }
    }
}

payload! {
    /// A tool that was given up answered after all; its output was discarded.
    ToolLate {
        /// The call.
        call_id: CallId,
        /// The number of the execution.
        execution: u32,
    }
}

impl ToolLate {
    /// Names the call and the execution that answered.
    #[must_use]
    pub fn new(call_id: impl Into<CallId>, execution: u32) -> Self {
        Self { call_id: call_id.into(), execution }
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
        /// The arguments that the decision is bound to.
        arguments_hash: Arc<str>,
        /// JSON Schema of the data that goes with a yes; none is asked for where it does not say.
        #[serde(default)]
        schema: Option<JsonText>,
        /// The question of a call that is running already, in its tool's words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<Arc<str>>,
        /// Until when it can be decided; for ever where it does not say.
        #[serde(default)]
        expires_at: Option<Timestamp>,
        /// The people who may decide it.
        #[serde(default)]
        approvers: Approvers,
    }
}

impl ApprovalRequested {
    /// Asks about a call; any person may decide it, for ever.
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
    /// A person agreed.
    ApprovalGranted {
        /// The approval.
        approval_id: ApprovalId,
        /// The call it is about.
        call_id: CallId,
        /// The person or program that decided.
        by: Arc<str>,
        /// `null` or a code.
        reason: Option<Code>,
        /// The person's words.
        message: Option<Arc<str>>,
        /// The arguments that the call gets instead of those that were shown.
        #[serde(default)]
        arguments: Option<JsonText>,
        /// The data that was asked for.
        #[serde(default)]
        data: Option<JsonText>,
    }
}

impl ApprovalGranted {
    /// States who agreed, without a word, to the arguments that were shown.
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
    /// A person declined, or there was no decision in time.
    ApprovalDenied {
        /// The approval.
        approval_id: ApprovalId,
        /// The call it is about.
        call_id: CallId,
        /// The person or program that decided.
        by: Arc<str>,
        /// The code: `approval.denied`, `approval.expired`, or why the call ended that asked.
        reason: Code,
        /// The person's words.
        message: Option<Arc<str>>,
    }
}

impl ApprovalDenied {
    /// States who declined, without a word.
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
        /// Its id.
        error_id: ErrorId,
        /// The call it came from.
        call_id: CallId,
        /// The tool.
        tool: Arc<str>,
        /// The tool author's code.
        code: Option<Arc<str>>,
        /// The number of times it was seen in the session.
        occurrences: u64,
        /// Characters kept from the model.
        chars_kept: u64,
    }
}

impl ErrorStored {
    /// States where an error was stored for which the tool has no code.
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
    /// An error could not be stored; the model got a cut text.
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
    /// Names the operation, `store` or `get`, and takes the reason it failed.
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
        /// Its id.
        result_id: ResultId,
        /// The call it came from.
        call_id: CallId,
        /// Its size.
        bytes: u64,
    }
}

impl ResultStored {
    /// States where the result of a call was stored, and its size.
    #[must_use]
    pub fn new(result_id: impl Into<ResultId>, call_id: impl Into<CallId>, bytes: u64) -> Self {
        Self { result_id: result_id.into(), call_id: call_id.into(), bytes }
    }
}
