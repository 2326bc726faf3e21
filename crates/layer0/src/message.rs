//! What the model is sent and what it asks for.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::CallId;

pub use self::image::{Image, ImageError, MAX_IMAGE_BYTES};

mod image;

/// One message of a conversation, provider-neutral.
///
/// Serialises as `{"role": …, "content": …, "images"?, "tool_calls"?, "provider_state"?,
/// "tool_call_id"?, "is_error"?}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Message {
    /// Instructions that hold for the whole conversation.
    System {
        /// The text.
        content: Arc<str>,
    },
    /// What the caller says.
    User {
        /// The text.
        content: Arc<str>,
        /// The pictures it speaks of, in its order.
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        images: Arc<[Image]>,
    },
    /// What the model said, and the tools it asked for.
    Assistant {
        /// The text; empty when the model only asked for tools.
        content: Arc<str>,
        /// The calls, in the model's order.
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        tool_calls: Arc<[ToolCall]>,
        /// What the provider wants back with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider_state: Option<ProviderState>,
    },
    /// What one tool call came to.
    Tool {
        /// The call this answers.
        tool_call_id: CallId,
        /// The output, or the text of the failure.
        content: Arc<str>,
        /// Did the call fail?
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

impl Message {
    /// Makes a system message.
    pub fn system(content: impl Into<Arc<str>>) -> Self {
        Self::System { content: content.into() }
    }

    /// Makes a user message.
    pub fn user(content: impl Into<Arc<str>>) -> Self {
        Self::User { content: content.into(), images: Arc::default() }
    }

    /// Makes an assistant message that no provider wants anything back with.
    pub fn assistant(content: impl Into<Arc<str>>, tool_calls: Arc<[ToolCall]>) -> Self {
        Self::Assistant { content: content.into(), tool_calls, provider_state: None }
    }

    /// Makes the answer to a tool call.
    pub fn tool(tool_call_id: CallId, content: impl Into<Arc<str>>, is_error: bool) -> Self {
        Self::Tool { tool_call_id, content: content.into(), is_error }
    }
}

/// One tool call the model asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The call's id, unique in the run.
    pub id: CallId,
    /// The tool's name as the model wrote it.
    pub name: Arc<str>,
    /// The arguments: an object, or the raw text where the model's JSON did not parse.
    pub arguments: Arc<Value>,
}

/// What a provider wants back, as it came, with the answer that it gave: signed or encrypted
/// reasoning. Nobody else reads it, and another provider is not sent it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProviderState {
    /// The name of the provider that gave it.
    pub provider: Arc<str>,
    /// The name of the model.
    pub model: Arc<str>,
    /// Scheme, host and port it is asked at.
    pub endpoint: Arc<str>,
    /// The parts, in the answer's order.
    pub parts: Arc<[StatePart]>,
}

impl ProviderState {
    /// Returns what this provider and model gave at this endpoint, in order; nothing of what others
    /// did.
    #[must_use]
    pub fn parts_for(&self, provider: &str, model: &str, endpoint: &str) -> &[StatePart] {
        let gave = *self.provider == *provider && *self.model == *model;
        if gave && *self.endpoint == *endpoint { &self.parts } else { &[] }
    }
}

/// One part of what a provider wants back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatePart {
    /// How many bytes of the answer's text stand before it.
    #[serde(default)]
    pub text_before: usize,
    /// How many of the answer's tool calls stand before it.
    pub calls_before: usize,
    /// What it is, in the provider's own shape.
    pub data: Value,
}

/// A conversation that is shared, never copied, from turn to turn.
///
/// Cloning costs one reference count. Appending costs one push while nobody else holds a clone,
/// which is so between model calls.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Transcript(Arc<Vec<Arc<Message>>>);

impl Transcript {
    /// Appends a message.
    pub fn push(&mut self, message: Message) {
        Arc::make_mut(&mut self.0).push(Arc::new(message));
    }

    /// Appends a message that another transcript holds too.
    pub fn push_shared(&mut self, message: Arc<Message>) {
        Arc::make_mut(&mut self.0).push(message);
    }

    /// Returns the messages, oldest first.
    #[must_use]
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.0
    }
}

/// Why the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// It said all it had to say.
    End,
    /// It asks for tools.
    ToolUse,
    /// It reached the output token limit.
    MaxTokens,
    /// It refused.
    Refusal,
    /// A content filter cut it.
    ContentFilter,
    /// The provider paused a long turn; sending the conversation again goes on.
    Pause,
    /// The context was used up while it answered.
    ContextExceeded,
    /// What it produced was not well-formed.
    Malformed,
}
