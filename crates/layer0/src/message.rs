//! What the model is sent and what it asks for.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::CallId;

/// One message of a conversation, provider-neutral.
///
/// Serialises as `{"role": …, "content": …, "tool_calls"?, "tool_call_id"?, "is_error"?}`.
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
    },
    /// What the model said, and the tools it asked for.
    Assistant {
        /// The text; empty when the model only asked for tools.
        content: Arc<str>,
        /// The calls, in the model's order.
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        tool_calls: Arc<[ToolCall]>,
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
        Self::User { content: content.into() }
    }

    /// Makes an assistant message.
    pub fn assistant(content: impl Into<Arc<str>>, tool_calls: Arc<[ToolCall]>) -> Self {
        Self::Assistant { content: content.into(), tool_calls }
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
    pub arguments: Value,
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
