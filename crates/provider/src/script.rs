//! The `[[model]]` entries of scenario and script files.

use std::sync::Arc;
use std::time::Duration;

use layer0::message::StopReason;
use layer0::usage::TokenUsage;
use serde::Deserialize;
use serde_json::Value;

use crate::{ProviderError, TimeoutPhase};

/// An answer of a scripted model.
///
/// ```
/// use backstop_provider::ScriptedAnswer;
/// use serde_json::json;
///
/// let answer = ScriptedAnswer::calling("add", json!({"x": 1, "y": 2})).text("Let me see.");
/// assert_eq!(answer.tool_calls.len(), 1);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ScriptedAnswer {
    /// The text, or the part streamed before the error.
    pub text: Option<Arc<str>>,
    /// The thinking.
    pub thinking: Option<Arc<str>>,
    /// The tool calls.
    pub tool_calls: Vec<ScriptedToolCall>,
    /// The stop reason; by default `tool_use` with tool calls, else `end`.
    pub stop_reason: Option<StopReason>,
    /// The billed tokens, also for a failed attempt.
    pub usage: Option<TokenUsage>,
    /// The failure.
    pub error: Option<ScriptedError>,
    /// The duration of the attempt, in milliseconds.
    pub delay_ms: u64,
}

impl ScriptedAnswer {
    /// Makes an answer with a text.
    pub fn saying(text: impl Into<Arc<str>>) -> Self {
        Self::default().text(text)
    }

    /// Makes an answer with one tool call.
    pub fn calling(tool: impl Into<String>, arguments: Value) -> Self {
        Self::default().tool_calls([ScriptedToolCall::new("call-1", tool, arguments)])
    }

    /// Makes an answer that is a failure.
    #[must_use]
    pub fn failing(kind: ErrorKind) -> Self {
        Self::default().error(ScriptedError::new(kind))
    }

    /// Sets the text, or the part streamed before the error.
    #[must_use]
    pub fn text(mut self, text: impl Into<Arc<str>>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// Sets the thinking.
    #[must_use]
    pub fn thinking(mut self, thinking: impl Into<Arc<str>>) -> Self {
        self.thinking = Some(thinking.into());
        self
    }

    /// Adds tool calls.
    #[must_use]
    pub fn tool_calls(mut self, calls: impl IntoIterator<Item = ScriptedToolCall>) -> Self {
        self.tool_calls.extend(calls);
        self
    }

    /// Sets the stop reason.
    #[must_use]
    pub fn stop_reason(mut self, reason: StopReason) -> Self {
        self.stop_reason = Some(reason);
        self
    }

    /// Sets the billed tokens.
    #[must_use]
    pub const fn usage(mut self, usage: TokenUsage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Makes the attempt fail, after its text.
    #[must_use]
    pub const fn error(mut self, error: ScriptedError) -> Self {
        self.error = Some(error);
        self
    }

    /// Sets the duration of the attempt, in milliseconds.
    #[must_use]
    pub const fn delay_ms(mut self, delay_ms: u64) -> Self {
        self.delay_ms = delay_ms;
        self
    }
}

/// A tool call of a scripted answer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ScriptedToolCall {
    /// The id of the call; may be empty, as some providers omit it.
    #[serde(default)]
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments. A string is read like a model's text: it may not parse, and its numbers keep
    /// their form.
    #[serde(default = "empty_object")]
    pub arguments: Value,
}

impl ScriptedToolCall {
    /// Makes a call of a tool.
    #[must_use]
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: Value) -> Self {
        Self { id: id.into(), name: name.into(), arguments }
    }
}

fn empty_object() -> Value {
    Value::Object(serde_json::Map::new())
}

/// The failure of a scripted attempt.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ScriptedError {
    /// The class of the failure.
    pub kind: ErrorKind,
    /// The requested retry delay, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// The HTTP status.
    pub status: Option<u16>,
}

impl ScriptedError {
    /// Makes a failure of this class without a retry delay and a status.
    #[must_use]
    pub const fn new(kind: ErrorKind) -> Self {
        Self { kind, retry_after_ms: None, status: None }
    }
}

/// The classes of failures in a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// [`ProviderError::TransientError`]
    Transient,
    /// [`ProviderError::RateLimited`]
    RateLimited,
    /// [`ProviderError::InvalidRequest`]
    InvalidRequest,
    /// [`ProviderError::ContentBlocked`]
    ContentBlocked,
    /// [`ProviderError::AuthFailed`]
    AuthFailed,
    /// [`ProviderError::InvalidResponse`]
    InvalidResponse,
    /// [`ProviderError::ContextOverflow`]
    ContextOverflow,
    /// [`ProviderError::QuotaExhausted`]
    QuotaExhausted,
    /// [`ProviderError::Timeout`]
    Timeout,
    /// [`ProviderError::StreamTruncated`]
    StreamTruncated,
}

impl From<&ScriptedError> for ProviderError {
    fn from(error: &ScriptedError) -> Self {
        let hint = error.retry_after_ms.map(Duration::from_millis);
        match error.kind {
            ErrorKind::Transient => {
                Self::transient("scripted transient error", error.status).with_retry_after(hint)
            }
            ErrorKind::RateLimited => Self::rate_limited("scripted rate limit", hint),
            ErrorKind::InvalidRequest => {
                Self::invalid_request("scripted invalid request", error.status)
            }
            ErrorKind::ContentBlocked => Self::content_blocked("scripted block"),
            ErrorKind::AuthFailed => Self::AuthFailed("scripted refusal of the key".into()),
            ErrorKind::InvalidResponse => Self::InvalidResponse("scripted garbage".into()),
            ErrorKind::ContextOverflow => Self::context_overflow("scripted overflow"),
            ErrorKind::QuotaExhausted => Self::quota_exhausted("scripted quota"),
            ErrorKind::Timeout => {
                Self::timeout(TimeoutPhase::Upstream, None).with_retry_after(hint)
            }
            ErrorKind::StreamTruncated => Self::stream_truncated("the scripted end marker"),
        }
    }
}
