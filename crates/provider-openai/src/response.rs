//! What comes back in one piece, and the parts that a stream shares with it.

use layer0::message::StopReason;
use layer0::usage::TokenUsage;
use provider::{ModelResponse, ProviderError, StreamSink};
use provider_http::{Answer, CallDraft, Endpoint, finish_calls, lenient};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct ChatResponse {
    choices: Option<Vec<Choice>>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default, deserialize_with = "lenient::count")]
    index: Option<u64>,
    message: Option<Said>,
    #[serde(default, deserialize_with = "lenient::text")]
    finish_reason: Option<String>,
    error: Option<Value>,
}

/// Returns the choice that was asked for. Further ones are answered only by an endpoint that gives more
/// than one unasked; `index` reads where a choice stands.
pub(crate) fn asked_for<C>(
    choices: Option<Vec<C>>,
    index: impl Fn(&C) -> Option<u64>,
    warned: &mut bool,
) -> Option<C> {
    let (asked, further): (Vec<C>, Vec<C>) = choices
        .unwrap_or_default()
        .into_iter()
        .partition(|choice| index(choice).unwrap_or_default() == 0);
    if !further.is_empty() && !std::mem::replace(warned, true) {
        tracing::warn!("ignored a choice other than the first: more than one was not asked for");
    }
    asked.into_iter().next()
}

/// What the model said: a message, or a piece of one.
#[derive(Deserialize, Default)]
pub(crate) struct Said {
    pub(crate) content: Option<Content>,
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) refusal: Option<String>,
    /// As DeepSeek, llama.cpp and others call it.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) reasoning_content: Option<String>,
    /// As OpenRouter and newer vLLM call it.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) reasoning: Option<String>,
    pub(crate) tool_calls: Option<Vec<CallPiece>>,
}

impl Said {
    pub(crate) fn thinking(&self) -> Option<&str> {
        self.reasoning_content
            .as_deref()
            .or(self.reasoning.as_deref())
            .filter(|thinking| !thinking.is_empty())
    }
}

/// Text, or the parts that some endpoints send instead.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Content {
    Text(String),
    Parts(Vec<Self>),
    Part {
        #[serde(default, deserialize_with = "lenient::text")]
        text: Option<String>,
    },
    /// What is no text.
    Other(IgnoredAny),
}

impl Content {
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => parts.into_iter().map(Self::into_text).collect(),
            Self::Part { text } => text.unwrap_or_default(),
            Self::Other(_) => String::new(),
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct CallPiece {
    #[serde(default, deserialize_with = "lenient::count")]
    pub(crate) index: Option<u64>,
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) id: Option<String>,
    pub(crate) function: Option<FunctionPiece>,
}

#[derive(Deserialize, Default)]
pub(crate) struct FunctionPiece {
    pub(crate) name: Option<String>,
    /// JSON in a string; a few endpoints send the JSON itself.
    pub(crate) arguments: Option<Box<RawValue>>,
}

#[derive(Deserialize, Default)]
pub(crate) struct WireUsage {
    #[serde(default, deserialize_with = "lenient::count")]
    prompt_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    completion_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Deserialize, Default)]
struct PromptDetails {
    #[serde(default, deserialize_with = "lenient::count")]
    cached_tokens: Option<u64>,
}

impl From<WireUsage> for TokenUsage {
    fn from(usage: WireUsage) -> Self {
        let details = usage.prompt_tokens_details.unwrap_or_default();
        Self {
            input_tokens: usage.prompt_tokens.unwrap_or_default(),
            output_tokens: usage.completion_tokens.unwrap_or_default(),
            cached_tokens: details.cached_tokens.unwrap_or_default(),
        }
    }
}

/// Reads a whole answer. Only usage goes to the sink: nobody waits for text that is there at once.
pub(crate) async fn read(
    endpoint: &Endpoint,
    answer: Answer<'_>,
    sink: Option<&dyn StreamSink>,
) -> Result<ModelResponse, ProviderError> {
    let retry_after = answer.retry_after();
    let response: ChatResponse = answer.json().await?;
    let usage = response.usage.map(TokenUsage::from);
    if let (Some(sink), Some(usage)) = (sink, usage) {
        sink.usage(usage);
    }
    let Some(choice) = asked_for(response.choices, |choice| choice.index, &mut false) else {
        return Err(endpoint.invalid_response("an answer without choices"));
    };
    if let Some(error) = choice.error.filter(|error| !error.is_null()) {
        return Err(endpoint.failure(error, retry_after));
    }
    let message = choice.message.unwrap_or_default();
    let mut draft = Draft { usage: usage.unwrap_or_default(), ..Draft::default() };
    draft.thinking.extend(message.thinking());
    draft.refused = message.refusal.as_ref().is_some_and(|refusal| !refusal.is_empty());
    draft.text.extend(message.content.map(Content::into_text));
    draft.text.extend(message.refusal);
    draft.calls = message
        .tool_calls
        .unwrap_or_default()
        .into_iter()
        .map(|piece| {
            let mut call = CallDraft::default();
            take_piece(&mut call, piece);
            call
        })
        .collect();
    draft.finish(endpoint, choice.finish_reason.as_deref())
}

/// An answer that is being put together.
#[derive(Default)]
pub(crate) struct Draft {
    pub(crate) text: String,
    pub(crate) thinking: String,
    pub(crate) refused: bool,
    pub(crate) calls: Vec<CallDraft>,
    pub(crate) usage: TokenUsage,
}

/// Takes a piece of a call. Id and name are whole where they come; some endpoints repeat them.
pub(crate) fn take_piece(call: &mut CallDraft, piece: CallPiece) {
    if call.id.is_empty() {
        call.id = piece.id.unwrap_or_default();
    }
    let function = piece.function.unwrap_or_default();
    if call.name.is_empty() {
        call.name = function.name.unwrap_or_default();
    }
    call.take(function.arguments);
}

impl Draft {
    pub(crate) fn finish(
        self,
        endpoint: &Endpoint,
        finish_reason: Option<&str>,
    ) -> Result<ModelResponse, ProviderError> {
        let Some(reason) = finish_reason.filter(|reason| !reason.is_empty()) else {
            return Err(ProviderError::stream_truncated("a finish reason"));
        };
        let stop_reason = match read_finish_reason(endpoint, reason) {
            StopReason::End | StopReason::ToolUse if self.refused => StopReason::Refusal,
            // Several endpoints say `stop` beside their tool calls.
            StopReason::End if !self.calls.is_empty() => StopReason::ToolUse,
            reason => reason,
        };
        Ok(ModelResponse {
            text: self.text.into(),
            thinking: (!self.thinking.is_empty()).then(|| self.thinking.into()),
            provider_state: None,
            tool_calls: finish_calls(self.calls, &stop_reason),
            stop_reason,
            usage: self.usage,
        })
    }
}

/// Reads a finish reason; one that is not known is taken for no other.
fn read_finish_reason(endpoint: &Endpoint, reason: &str) -> StopReason {
    match reason {
        "stop" | "eos" => StopReason::End,
        "tool_calls" | "function_call" => StopReason::ToolUse,
        "length" => StopReason::MaxTokens,
        "content_filter" => StopReason::ContentFilter,
        // Mistral's: the context was full.
        "model_length" => StopReason::ContextExceeded,
        word => endpoint.unknown_stop(word),
    }
}
