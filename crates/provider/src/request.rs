use std::fmt;
use std::sync::Arc;

use layer0::ToolSpec;
use layer0::id::RunId;
use layer0::message::{ProviderState, StopReason, ToolCall, Transcript};
use layer0::usage::{RateLevel, TokenUsage};
use serde::{Deserialize, Serialize};

use crate::output::OutputSchema;
use crate::settings::ModelSettings;

/// A request to a model. Cloning copies no messages.
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
    /// The tools that the model may call.
    pub tools: Arc<[ToolSpec]>,
    /// The settings of the answer.
    pub settings: ModelSettings,
    /// The schema that the final answer must match. It is absent for a provider that does not
    /// enforce it ([`Provider::output_support`](crate::Provider::output_support)).
    pub output: Option<OutputSchema>,
    /// The sink for the answer while it is streamed, if any.
    pub sink: Option<Arc<dyn StreamSink>>,
    /// The calling run, so that a provider can distinguish the runs that share it; `None` outside
    /// of a run. It is not sent to an endpoint.
    pub run: Option<RunId>,
}

impl ModelRequest {
    /// Makes a request without tools, sink and run, with default settings.
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

    /// Sets the tools that the model may call.
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

    /// Sets the schema that the final answer must match.
    #[must_use]
    pub fn output(mut self, schema: OutputSchema) -> Self {
        self.output = Some(schema);
        self
    }

    /// Sets the sink for the answer while it is streamed.
    #[must_use]
    pub fn sink(mut self, sink: Arc<dyn StreamSink>) -> Self {
        self.sink = Some(sink);
        self
    }

    /// Sets the calling run.
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

/// A receiver of an answer while it is streamed. Calls never block and never fail.
pub trait StreamSink: Send + Sync {
    /// Receives the next piece of the answer's text.
    fn text(&self, piece: &str);

    /// Receives the next piece of the model's thinking.
    fn thinking(&self, piece: &str);

    /// Receives the HTTP status of the response, once it is known.
    fn status(&self, status: u16) {
        let _ = status;
    }

    /// Receives the provider's id of the request, once it is known.
    fn request_id(&self, id: &str) {
        let _ = id;
    }

    /// Receives the remaining requests and tokens of the endpoint's limits, once they are known.
    fn rate(&self, requests: Option<RateLevel>, tokens: Option<RateLevel>) {
        let _ = (requests, tokens);
    }

    /// Receives the tokens billed so far, so that a failed attempt is counted too. A later call
    /// replaces an earlier one.
    fn usage(&self, usage: TokenUsage);
}

/// A whole response.
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
    /// Provider state to send back with the answer in the next request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_state: Option<ProviderState>,
    /// The tool calls, in order.
    pub tool_calls: Arc<[ToolCall]>,
    /// The reason why the model stopped.
    pub stop_reason: StopReason,
    /// The billed tokens; `None` if the provider reported none, which differs from an answer that is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<TokenUsage>,
}

impl ModelResponse {
    /// Makes a response without thinking and without provider state.
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
