//! The `[[model]]` entries of scenario and script files.

use std::sync::Arc;
use std::time::Duration;

use layer0::message::StopReason;
use layer0::usage::TokenUsage;
use serde::Deserialize;
use serde_json::Value;

use crate::{ProviderError, TimeoutPhase};

/// What a scripted model does when it is asked.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptedAnswer {
    /// What it says, or what was streamed before the error.
    pub text: Option<Arc<str>>,
    /// What it thinks.
    pub thinking: Option<Arc<str>>,
    /// The tools it asks for.
    pub tool_calls: Vec<ScriptedToolCall>,
    /// Why it stops; by default `tool_use` with tool calls, else `end`.
    pub stop_reason: Option<StopReason>,
    /// What it is billed, also for an attempt that fails.
    pub usage: Option<TokenUsage>,
    /// How it fails.
    pub error: Option<ScriptedError>,
    /// How long it takes, in milliseconds.
    pub delay_ms: u64,
}

impl ScriptedAnswer {
    /// Says a text.
    pub fn saying(text: impl Into<Arc<str>>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// Asks for one tool.
    pub fn calling(tool: impl Into<String>, arguments: Value) -> Self {
        let call = ScriptedToolCall { id: "call-1".into(), name: tool.into(), arguments };
        Self { tool_calls: vec![call], ..Self::default() }
    }

    /// Fails.
    #[must_use]
    pub fn failing(kind: ErrorKind) -> Self {
        let error = ScriptedError { kind, retry_after_ms: None, status: None };
        Self { error: Some(error), ..Self::default() }
    }
}

/// A tool call of a scripted answer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedToolCall {
    /// The call's id; may be missing, as some providers omit it.
    #[serde(default)]
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments; a string is read as a model's text, which may not parse, and keeps numbers as
    /// they are written.
    #[serde(default = "empty_object")]
    pub arguments: Value,
}

fn empty_object() -> Value {
    Value::Object(serde_json::Map::new())
}

/// How a scripted attempt fails.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedError {
    /// The class.
    pub kind: ErrorKind,
    /// The wait the provider asks for, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// The HTTP status.
    pub status: Option<u16>,
}

/// The classes a script can name.
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
