//! What comes back in one piece, and the parts that a stream shares with it.

use layer0::message::{StopReason, ToolCall};
use layer0::usage::TokenUsage;
use provider::{ModelResponse, ProviderError, StreamSink};
use provider_http::{Answer, Endpoint, parse_arguments};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct ChatResponse {
    choices: Option<Vec<Choice>>,
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct Choice {
    message: Option<Said>,
    finish_reason: Option<String>,
    error: Option<Value>,
}

/// What the model said: a message, or a piece of one.
#[derive(Deserialize, Default)]
pub(crate) struct Said {
    pub(crate) content: Option<Content>,
    pub(crate) refusal: Option<String>,
    /// As DeepSeek, llama.cpp and others call it.
    pub(crate) reasoning_content: Option<String>,
    /// As OpenRouter and newer vLLM call it.
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
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
pub(crate) struct Part {
    text: Option<String>,
}

impl Content {
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => parts.into_iter().filter_map(|part| part.text).collect(),
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct CallPiece {
    pub(crate) index: Option<u64>,
    pub(crate) id: Option<String>,
    pub(crate) function: Option<FunctionPiece>,
}

#[derive(Deserialize, Default)]
pub(crate) struct FunctionPiece {
    pub(crate) name: Option<String>,
    /// JSON in a string; a few endpoints send the JSON itself.
    pub(crate) arguments: Option<Value>,
}

#[derive(Deserialize, Default)]
pub(crate) struct WireUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Deserialize, Default)]
struct PromptDetails {
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
    let Some(choice) = response.choices.and_then(|choices| choices.into_iter().next()) else {
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
            call.take(piece);
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

#[derive(Default)]
pub(crate) struct CallDraft {
    pub(crate) id: String,
    name: String,
    text: String,
    value: Option<Value>,
}

impl CallDraft {
    /// Takes a piece. Id and name are whole where they come; some endpoints repeat them.
    pub(crate) fn take(&mut self, piece: CallPiece) {
        if self.id.is_empty() {
            self.id = piece.id.unwrap_or_default();
        }
        let function = piece.function.unwrap_or_default();
        if self.name.is_empty() {
            self.name = function.name.unwrap_or_default();
        }
        match function.arguments {
            Some(Value::String(text)) => self.text.push_str(&text),
            Some(Value::Null) | None => {}
            Some(value) => self.value = Some(value),
        }
    }
}

impl Draft {
    pub(crate) fn finish(
        self,
        endpoint: &Endpoint,
        finish_reason: Option<&str>,
    ) -> Result<ModelResponse, ProviderError> {
        let Some(reason) = finish_reason else {
            return Err(ProviderError::stream_truncated("a finish reason"));
        };
        let Some(reason) = stop_reason(reason) else {
            return Err(endpoint.invalid_response(&format!("unknown finish reason: `{reason}`")));
        };
        let stop_reason = match reason {
            StopReason::End if self.refused => StopReason::Refusal,
            // Several endpoints say `stop` beside their tool calls.
            StopReason::End if !self.calls.is_empty() => StopReason::ToolUse,
            reason => reason,
        };
        let call = |draft: CallDraft| ToolCall {
            id: draft.id.into(),
            name: draft.name.into(),
            arguments: draft.value.unwrap_or_else(|| parse_arguments(&draft.text)).into(),
        };
        Ok(ModelResponse {
            text: self.text.into(),
            thinking: (!self.thinking.is_empty()).then(|| self.thinking.into()),
            provider_state: None,
            tool_calls: self.calls.into_iter().map(call).collect(),
            stop_reason,
            usage: self.usage,
        })
    }
}

/// Reads a finish reason; `None` where it is not known, so that none is taken for another.
fn stop_reason(reason: &str) -> Option<StopReason> {
    Some(match reason {
        "stop" | "eos" => StopReason::End,
        "tool_calls" | "function_call" => StopReason::ToolUse,
        "length" => StopReason::MaxTokens,
        "content_filter" => StopReason::ContentFilter,
        // Mistral's: the context was full.
        "model_length" => StopReason::ContextExceeded,
        _ => return None,
    })
}
