//! Messages to the model, and its answers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{CallId, SessionId};
use crate::json_text::JsonText;

pub use self::image::{Image, ImageError, MAX_IMAGE_BYTES};

mod image;
mod read;

/// A message of a conversation, in a provider-neutral form.
///
/// Serialises as `{"role": …, "content": …, "images"?, "tool_calls"?, "provider_state"?,
/// "tool_call_id"?, "is_error"?}`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Message {
    /// Instructions that hold for the whole conversation.
    System {
        /// The text.
        content: Arc<str>,
    },
    /// A message of the caller.
    User {
        /// The text.
        content: Arc<str>,
        /// The images, in order.
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        images: Arc<[Image]>,
    },
    /// An answer of the model, with the tool calls that it requests.
    Assistant {
        /// The text; empty if the model only requested tools.
        content: Arc<str>,
        /// The calls, in the model's order.
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        tool_calls: Arc<[ToolCall]>,
        /// The data that the provider requires back with the answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider_state: Option<ProviderState>,
    },
    /// The result of one tool call.
    Tool {
        /// The call that is answered.
        tool_call_id: CallId,
        /// The output, or the text of the failure.
        content: Arc<str>,
        /// The images that the tool shows in addition. A model that does not receive them has the text.
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        images: Arc<[Image]>,
        /// Whether the call failed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

impl Message {
    /// Creates a system message.
    pub fn system(content: impl Into<Arc<str>>) -> Self {
        Self::System { content: content.into() }
    }

    /// Creates a user message.
    pub fn user(content: impl Into<Arc<str>>) -> Self {
        Self::User { content: content.into(), images: Arc::default() }
    }

    /// Creates an assistant message without data for a provider.
    pub fn assistant(content: impl Into<Arc<str>>, tool_calls: Arc<[ToolCall]>) -> Self {
        Self::Assistant { content: content.into(), tool_calls, provider_state: None }
    }

    /// Creates the answer to a tool call.
    pub fn tool(tool_call_id: CallId, content: impl Into<Arc<str>>, is_error: bool) -> Self {
        Self::Tool { tool_call_id, content: content.into(), images: Arc::default(), is_error }
    }
}

/// A tool call that the model requested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolCall {
    /// The call's id, unique in the run.
    pub id: CallId,
    /// The tool's name, as the model wrote it.
    pub name: Arc<str>,
    /// The arguments, as the model wrote them: an object, or a string with the text if it is not valid JSON.
    pub arguments: JsonText,
}

impl ToolCall {
    /// Creates a call of a tool.
    ///
    /// ```
    /// use layer0::message::ToolCall;
    /// use serde_json::json;
    ///
    /// let call = ToolCall::new("call_1", "add", json!({"x": 1, "y": 2}));
    /// assert_eq!(call.arguments.get(), r#"{"x":1,"y":2}"#);
    /// ```
    #[must_use]
    pub fn new(
        id: impl Into<CallId>,
        name: impl Into<Arc<str>>,
        arguments: impl Into<JsonText>,
    ) -> Self {
        Self { id: id.into(), name: name.into(), arguments: arguments.into() }
    }
}

/// Data that a provider requires back unchanged with its answer: signed or encrypted reasoning. Nothing else reads it,
/// and it is not sent to another provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProviderState {
    /// The name of the provider.
    pub provider: Arc<str>,
    /// The name of the model.
    pub model: Arc<str>,
    /// Scheme, host and port of the endpoint.
    pub endpoint: Arc<str>,
    /// The parts, in the answer's order.
    pub parts: Arc<[StatePart]>,
}

impl ProviderState {
    /// Creates the state for this provider, model and endpoint (scheme, host and port).
    #[must_use]
    pub fn new(
        provider: impl Into<Arc<str>>,
        model: impl Into<Arc<str>>,
        endpoint: impl Into<Arc<str>>,
        parts: impl Into<Arc<[StatePart]>>,
    ) -> Self {
        let (provider, model) = (provider.into(), model.into());
        Self { provider, model, endpoint: endpoint.into(), parts: parts.into() }
    }

    /// Returns the parts from this provider, model and endpoint, in order; empty for another one.
    #[must_use]
    pub fn parts_for(&self, provider: &str, model: &str, endpoint: &str) -> &[StatePart] {
        let gave = *self.provider == *provider && *self.model == *model;
        if gave && *self.endpoint == *endpoint { &self.parts } else { &[] }
    }
}

/// A part of the data that a provider requires back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StatePart {
    /// The number of bytes of the answer's text before the part.
    #[serde(default)]
    pub text_before: usize,
    /// The number of the answer's tool calls before the part.
    pub calls_before: usize,
    /// The part, in the provider's own format.
    pub data: JsonText,
}

impl StatePart {
    /// Creates a part at the beginning of its answer.
    #[must_use]
    pub fn new(data: impl Into<JsonText>) -> Self {
        Self { text_before: 0, calls_before: 0, data: data.into() }
    }
}

/// A conversation that is shared, not copied, from turn to turn.
///
/// A clone costs one reference count. Appending costs one push if there is no other clone, as between model calls.
///
/// Two transcripts are equal if their messages are equal.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Transcript {
    messages: Arc<Vec<Arc<Message>>>,
    #[serde(skip)]
    sessions: Arc<[SessionId]>,
}

impl Transcript {
    /// Appends a message.
    pub fn push(&mut self, message: Message) {
        Arc::make_mut(&mut self.messages).push(Arc::new(message));
    }

    /// Appends a message that is shared with another transcript.
    pub fn push_shared(&mut self, message: Arc<Message>) {
        Arc::make_mut(&mut self.messages).push(message);
    }

    /// Returns the number of messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns whether the transcript is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Inserts messages that are shared with another transcript before the message at `index`.
    ///
    /// # Panics
    ///
    /// Panics if there are fewer messages than `index`.
    pub fn insert_shared(
        &mut self,
        index: usize,
        messages: impl IntoIterator<Item = Arc<Message>>,
    ) {
        Arc::make_mut(&mut self.messages).splice(index..index, messages);
    }

    /// Returns the messages, oldest first.
    #[must_use]
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.messages
    }

    /// Returns the sessions whose stored errors and results the messages may refer to. Transcripts of a run have them;
    /// they are not serialised.
    #[must_use]
    pub fn sessions(&self) -> &[SessionId] {
        &self.sessions
    }

    /// Sets the sessions whose stored errors and results the messages may refer to.
    #[must_use]
    pub fn with_sessions(mut self, sessions: impl Into<Arc<[SessionId]>>) -> Self {
        self.sessions = sessions.into();
        self
    }

    /// Returns an iterator over the messages, oldest first.
    ///
    /// ```
    /// use layer0::message::{Message, Transcript};
    ///
    /// let said: Transcript = ["Hello.", "Is anyone there?"].map(Message::user).into_iter().collect();
    /// assert_eq!(said.iter().filter(|message| matches!(&***message, Message::User { .. })).count(), 2);
    /// assert_eq!(said.len(), 2);
    /// ```
    pub fn iter(&self) -> std::slice::Iter<'_, Arc<Message>> {
        self.messages.iter()
    }
}

impl<'a> IntoIterator for &'a Transcript {
    type Item = &'a Arc<Message>;
    type IntoIter = std::slice::Iter<'a, Arc<Message>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Collects messages, oldest first.
impl<M: Into<Arc<Message>>> FromIterator<M> for Transcript {
    fn from_iter<I: IntoIterator<Item = M>>(messages: I) -> Self {
        let messages = Arc::new(messages.into_iter().map(Into::into).collect());
        Self { messages, sessions: Arc::default() }
    }
}

impl PartialEq for Transcript {
    fn eq(&self, other: &Self) -> bool {
        self.messages == other.messages
    }
}

/// The reason that the model stopped.
///
/// Serialises as one word: `end`, `tool_use`, `max_tokens`, `refusal`, `content_filter`, `pause`, `context_exceeded`,
/// `malformed`, or an unknown word of the provider.
///
/// ```
/// use layer0::message::StopReason;
///
/// assert_eq!(StopReason::from_word("max_tokens"), StopReason::MaxTokens);
/// assert_eq!(StopReason::from_word("abducted").as_str(), "abducted");
/// assert!(!StopReason::from_word("abducted").lets_calls_run());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The answer is complete.
    End,
    /// The model requested tools.
    ToolUse,
    /// The answer reached the output token limit.
    MaxTokens,
    /// The model refused to answer.
    Refusal,
    /// A content filter cut the answer off.
    ContentFilter,
    /// The provider paused a long turn; sending the conversation again continues it.
    Pause,
    /// The context was full before the answer was complete.
    ContextExceeded,
    /// The answer was not well-formed.
    Malformed,
    /// An unknown reason, as the provider names it. [`StopReason::from_word`] creates it, so that it is none of the words
    /// above.
    #[serde(untagged)]
    Unknown(Arc<str>),
}

impl StopReason {
    /// Returns the reason for a word in records and scripts; [`StopReason::Unknown`] for every other word.
    #[must_use]
    pub fn from_word(word: &str) -> Self {
        let known = [
            Self::End,
            Self::ToolUse,
            Self::MaxTokens,
            Self::Refusal,
            Self::ContentFilter,
            Self::Pause,
            Self::ContextExceeded,
            Self::Malformed,
        ];
        let found = known.into_iter().find(|reason| reason.as_str() == word);
        found.unwrap_or_else(|| Self::Unknown(word.into()))
    }

    /// Returns the word in records.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::End => "end",
            Self::ToolUse => "tool_use",
            Self::MaxTokens => "max_tokens",
            Self::Refusal => "refusal",
            Self::ContentFilter => "content_filter",
            Self::Pause => "pause",
            Self::ContextExceeded => "context_exceeded",
            Self::Malformed => "malformed",
            Self::Unknown(word) => word,
        }
    }

    /// Returns whether the answer's tool calls may run. They may only run if the model finished: in an answer that was
    /// cut off, a call may be cut off too, and look complete.
    #[must_use]
    pub const fn lets_calls_run(&self) -> bool {
        matches!(self, Self::End | Self::ToolUse)
    }
}
