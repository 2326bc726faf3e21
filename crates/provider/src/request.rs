use std::fmt;
use std::sync::Arc;

use layer0::ToolSpec;
use layer0::id::RunId;
use layer0::message::{ProviderState, StopReason, ToolCall, Transcript};
use layer0::usage::{RateLevel, TokenUsage};
use serde::{Deserialize, Serialize};

use crate::output::OutputSchema;
use crate::settings::ModelSettings;

/// A request to a model. Cloning copies no message.
///
/// ```
/// use backstop_provider::{ModelRequest, ModelSettings};
/// use layer0::message::{Message, Transcript};
///
/// let mut messages = Transcript::default();
/// messages.push(Message::user("What is 6 times 7?"));
/// let request = ModelRequest::new(messages).settings(ModelSettings::new().temperature(0.0));
/// assert!(request.tools.is_empty());
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct ModelRequest {
    /// The conversation, oldest first.
    pub messages: Transcript,
    /// The tools the model may ask for.
    pub tools: Arc<[ToolSpec]>,
    /// The settings of the answer.
    pub settings: ModelSettings,
    /// The form that the final answer has to have. A provider that does not hold answers to it
    /// ([`Provider::output_support`](crate::Provider::output_support)) is not given one.
    pub output: Option<OutputSchema>,
    /// The listener for the answer while it is streamed; `None` without one.
    pub sink: Option<Arc<dyn StreamSink>>,
    /// The run that asks, so that a provider can distinguish the runs that share it; `None` outside of one. It is sent
    /// to no endpoint.
    pub run: Option<RunId>,
}

impl ModelRequest {
    /// Makes a request without tools, with default settings, without a listener and outside of a run.
    #[must_use]
    pub fn new(messages: Transcript) -> Self {
        Self {
            messages,
            tools: Arc::default(),
            settings: ModelSettings::default(),
            output: None,
            sink: None,
            run: None,
        }
    }

    /// Lets the model ask for these tools.
    #[must_use]
    pub fn tools(mut self, tools: impl Into<Arc<[ToolSpec]>>) -> Self {
        self.tools = tools.into();
        self
    }

    /// Sets the settings of the answer.
    #[must_use]
    pub fn settings(mut self, settings: ModelSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Holds the final answer to a form.
    #[must_use]
    pub fn output(mut self, schema: OutputSchema) -> Self {
        self.output = Some(schema);
        self
    }

    /// Sets the listener for the answer while it is streamed.
    #[must_use]
    pub fn sink(mut self, sink: Arc<dyn StreamSink>) -> Self {
        self.sink = Some(sink);
        self
    }

    /// Sets the run that asks.
    #[must_use]
    pub fn run(mut self, run: RunId) -> Self {
        self.run = Some(run);
        self
    }
}

impl fmt::Debug for ModelRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelRequest")
            .field("messages", &self.messages.messages().len())
            .field("tools", &self.tools.len())
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Receives an answer while it comes. Calls never block and never fail.
pub trait StreamSink: Send + Sync {
    /// Takes the next piece of the answer's text.
    fn text(&self, piece: &str);

    /// Takes the next piece of the model's thinking.
    fn thinking(&self, piece: &str);

    /// Takes the HTTP status of the answer, once it is known.
    fn status(&self, status: u16) {
        let _ = status;
    }

    /// Takes what the provider calls the request, once it is known.
    fn request_id(&self, id: &str) {
        let _ = id;
    }

    /// Receives the rest of the endpoint's limits, of requests and of tokens, once it is known.
    fn rate(&self, requests: Option<RateLevel>, tokens: Option<RateLevel>) {
        let _ = (requests, tokens);
    }

    /// Takes the tokens billed so far, so that an attempt that fails is counted too. A later call
    /// replaces an earlier one.
    fn usage(&self, usage: TokenUsage);
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelResponse {
    /// The text of the answer; may be empty.
    pub text: Arc<str>,
    /// The part of the text that is the final answer, if the provider separates it from commentary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Arc<str>>,
    /// The model's thinking, if the provider returns it.
    pub thinking: Option<Arc<str>>,
    /// The data that the provider wants back with the answer in the next request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_state: Option<ProviderState>,
    /// The tools it asks for, in its order.
    pub tool_calls: Arc<[ToolCall]>,
    /// The reason it stopped.
    pub stop_reason: StopReason,
    /// The tokens that were billed; `None` where the provider stated none, which is not the same as an
    /// answer that is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<TokenUsage>,
}

impl ModelResponse {
    /// Makes an answer of a model that did not think aloud, and whose provider wants nothing back.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use backstop_provider::ModelResponse;
    /// use layer0::message::StopReason;
    /// use layer0::usage::TokenUsage;
    ///
    /// let usage = Some(TokenUsage::new(12, 1));
    /// let mut answer = ModelResponse::new("42", Arc::default(), StopReason::End, usage);
    /// answer.thinking = Some("Six times seven.".into());
    /// ```
    #[must_use]
    pub fn new(
        text: impl Into<Arc<str>>,
        tool_calls: Arc<[ToolCall]>,
        stop_reason: StopReason,
        usage: Option<TokenUsage>,
    ) -> Self {
        Self {
            text: text.into(),
            answer: None,
            thinking: None,
            provider_state: None,
            tool_calls,
            stop_reason,
            usage,
        }
    }
}
