//! Model calls and their requests.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::failure::RetryFacts;
use crate::message::{ProviderState, StopReason, ToolCall};
use crate::usage::TokenUsage;

payload! {
    /// A model call starts.
    ModelRequested {
        /// The number of the call: 1, 2, ….
        call: u32,
        /// FNV-1a 64 over the previous digest and the new messages, 16 hex digits.
        request_digest: Arc<str>,
        /// FNV-1a 64 over the tool list, 16 hex digits.
        tools_digest: Arc<str>,
        /// The number of messages in the request.
        messages: u32,
    }
}

impl ModelRequested {
    /// Creates the event for a call and its request.
    #[must_use]
    pub fn new(
        call: u32,
        request_digest: impl Into<Arc<str>>,
        tools_digest: impl Into<Arc<str>>,
        messages: u32,
    ) -> Self {
        Self {
            call,
            request_digest: request_digest.into(),
            tools_digest: tools_digest.into(),
            messages,
        }
    }
}

payload! {
    /// One attempt of a model call ended.
    ModelAttempted {
        /// The number of the model call.
        call: u32,
        /// The number of the attempt: 1, 2, ….
        attempt: u32,
        /// The provider of the attempt.
        provider: Arc<str>,
        /// The model of the attempt, as its provider names it; absent if it is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<Arc<str>>,
        /// The code of the failure; null for a success.
        code: Option<Code>,
        /// The HTTP status, if there was one.
        status: Option<u16>,
        /// The wait before the next attempt, in milliseconds; null if there is none.
        delay_ms: Option<u64>,
        /// The billed tokens.
        usage: Option<TokenUsage>,
        /// Whether `usage` contains a count that the provider did not report, and that was estimated from the length of
        /// the texts.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        usage_estimated: bool,
        /// The cost of the tokens, in billionths of a US dollar; null without a price.
        #[serde(default)]
        cost_nanousd: Option<u64>,
        /// The provider of the next attempt; null unless it is another one.
        #[serde(default)]
        next_provider: Option<Arc<str>>,
        /// The duration of the attempt, in milliseconds; 0 in records without it.
        #[serde(default)]
        duration_ms: u64,
        /// The time until the first chunk of a streamed answer, in milliseconds.
        #[serde(default)]
        first_token_ms: Option<u64>,
        /// The provider's id of the request, for a request to its support.
        #[serde(default)]
        request_id: Option<Arc<str>>,
    }
}

impl ModelAttempted {
    /// Creates the event for a successful attempt, without further details.
    #[must_use]
    pub fn new(call: u32, attempt: u32, provider: impl Into<Arc<str>>) -> Self {
        Self {
            call,
            attempt,
            provider: provider.into(),
            model: None,
            code: None,
            status: None,
            delay_ms: None,
            usage: None,
            usage_estimated: false,
            cost_nanousd: None,
            next_provider: None,
            duration_ms: 0,
            first_token_ms: None,
            request_id: None,
        }
    }
}

payload! {
    /// The model answered.
    ModelResponded {
        /// The number of the model call.
        call: u32,
        /// The text of the answer.
        text: Arc<str>,
        /// The part of the text that is the final answer, if the provider separates it from commentary.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<Arc<str>>,
        /// The model's thinking, if the provider returns it.
        thinking: Option<Arc<str>>,
        /// The data that the provider requires back with the answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider_state: Option<ProviderState>,
        /// The requested tool calls.
        tool_calls: Arc<[ToolCall]>,
        /// The reason that the model stopped.
        stop_reason: StopReason,
        /// The tokens billed for the answer.
        usage: TokenUsage,
        /// Whether `usage` contains an estimated count, as in [`ModelAttempted`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        usage_estimated: bool,
    }
}

impl ModelResponded {
    /// Creates an answer without thinking, and without data for the provider.
    #[must_use]
    pub fn new(
        call: u32,
        text: impl Into<Arc<str>>,
        tool_calls: Arc<[ToolCall]>,
        stop_reason: StopReason,
        usage: TokenUsage,
    ) -> Self {
        Self {
            call,
            text: text.into(),
            tool_calls,
            stop_reason,
            usage,
            answer: None,
            usage_estimated: false,
            thinking: None,
            provider_state: None,
        }
    }
}

impl ModelResponded {
    /// Returns whether the answer has content for the transcript.
    #[must_use]
    pub fn is_said(&self) -> bool {
        let says = !self.text.trim().is_empty() || !self.tool_calls.is_empty();
        match self.stop_reason {
            StopReason::Malformed | StopReason::ContextExceeded => false,
            StopReason::MaxTokens
            | StopReason::Refusal
            | StopReason::ContentFilter
            | StopReason::Unknown(_) => !self.text.is_empty() || !self.tool_calls.is_empty(),
            StopReason::Pause => says || self.provider_state.is_some(),
            StopReason::End | StopReason::ToolUse => says,
        }
    }
}

payload! {
    /// A model call failed finally.
    ModelFailed {
        /// The number of the model call.
        call: u32,
        /// The code of the failure.
        reason: Code,
        /// The description of the failure for people.
        message: Arc<str>,
        /// The failure and its causes, outermost first.
        chain: Vec<String>,
        /// The number of attempts.
        attempts: u32,
        /// The failure's retry answers, if they differ from those of its code: a call that failed after all retries may
        /// help later, as its code states.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry: Option<RetryFacts>,
    }
}

impl ModelFailed {
    /// Creates the event for a failed call; its message is the first of the chain.
    #[must_use]
    pub fn new(call: u32, reason: impl Into<Code>, chain: Vec<String>, attempts: u32) -> Self {
        let message = chain.first().map_or("", String::as_str).into();
        Self { call, reason: reason.into(), message, chain, attempts, retry: None }
    }
}

payload! {
    /// Older messages were compacted.
    ContextCompacted {
        /// The first compacted message.
        from: u32,
        /// The last compacted message.
        to: u32,
        /// The estimated number of tokens before.
        tokens_before: u64,
        /// The estimated number of tokens after.
        tokens_after: u64,
    }
}

impl ContextCompacted {
    /// Creates the event for the compacted messages, with the number of tokens before and after.
    #[must_use]
    pub const fn new(from: u32, to: u32, tokens_before: u64, tokens_after: u64) -> Self {
        Self { from, to, tokens_before, tokens_after }
    }
}
