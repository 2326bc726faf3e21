//! What comes back in one piece, and the parts that a stream shares with it.

use backstop_provider::{ModelResponse, ProviderError};
use backstop_provider_http::{CallDraft, Draft, Reply, kept_id, lenient};
use layer0::JsonText;
use layer0::message::StopReason;
use layer0::usage::TokenUsage;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use super::kept::{Kept, call_part};

/// A whole answer.
#[derive(Deserialize)]
pub struct ChatResponse {
    choices: Option<Vec<Choice>>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    usage: Option<ChatUsage>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default, deserialize_with = "lenient::count")]
    index: Option<u64>,
    message: Option<AnswerMessage>,
    #[serde(default, deserialize_with = "lenient::text")]
    finish_reason: Option<String>,
    error: Option<Value>,
}

/// Returns the choice that was asked for. Further ones are answered only by an endpoint that gives more
/// than one unasked; `index` reads where a choice stands.
pub(super) fn asked_for<C>(
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
pub(super) struct AnswerMessage {
    pub(super) content: Option<AnswerContent>,
    #[serde(default, deserialize_with = "lenient::text")]
    pub(super) refusal: Option<String>,
    /// As DeepSeek, llama.cpp and others call it.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(super) reasoning_content: Option<String>,
    /// As OpenRouter and newer vLLM call it.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(super) reasoning: Option<String>,
    /// As OpenRouter wants it back.
    pub(super) reasoning_details: Option<JsonText>,
    /// As Gemini's compatible endpoint wants it back.
    pub(super) extra_content: Option<JsonText>,
    pub(super) tool_calls: Option<Vec<CallPiece>>,
}

impl AnswerMessage {
    /// Takes the fields that the endpoint wants back.
    pub(super) fn keep(&mut self, kept: &mut Kept) {
        kept.push_reasoning(self.reasoning_content.as_deref(), self.reasoning.as_deref());
        kept.push_details(self.reasoning_details.take());
        kept.push_extra(self.extra_content.take());
    }

    pub(super) fn thinking(&self) -> Option<&str> {
        self.reasoning_content
            .as_deref()
            .or(self.reasoning.as_deref())
            .filter(|thinking| !thinking.is_empty())
    }
}

/// Text, or the parts that some endpoints send instead.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum AnswerContent {
    Text(String),
    Parts(Vec<Self>),
    Part {
        #[serde(default, deserialize_with = "lenient::text")]
        text: Option<String>,
    },
    /// What is no text.
    Other(IgnoredAny),
}

impl AnswerContent {
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => parts.into_iter().map(Self::into_text).collect(),
            Self::Part { text } => text.unwrap_or_default(),
            Self::Other(_) => String::new(),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct CallPiece {
    #[serde(default, deserialize_with = "lenient::count")]
    pub(super) index: Option<u64>,
    #[serde(default, deserialize_with = "lenient::text")]
    pub(super) id: Option<String>,
    pub(super) function: Option<FunctionPiece>,
    pub(super) extra_content: Option<JsonText>,
}

#[derive(Deserialize, Default)]
pub(super) struct FunctionPiece {
    pub(super) name: Option<String>,
    /// JSON in a string; a few endpoints send the JSON itself.
    pub(super) arguments: Option<Box<RawValue>>,
}

#[derive(Deserialize, Default)]
pub(super) struct ChatUsage {
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

impl From<ChatUsage> for TokenUsage {
    fn from(usage: ChatUsage) -> Self {
        let details = usage.prompt_tokens_details.unwrap_or_default();
        let (input, output) = (usage.prompt_tokens, usage.completion_tokens);
        Self::new(input.unwrap_or_default(), output.unwrap_or_default())
            .cached_tokens(details.cached_tokens.unwrap_or_default())
    }
}

impl ChatResponse {
    pub(super) fn read(self, reply: &Reply<'_>) -> Result<ModelResponse, ProviderError> {
        let mut draft = Draft::default();
        if let Some(usage) = self.usage {
            draft.bill(usage.into(), reply);
        }
        let Some(choice) = asked_for(self.choices, |choice| choice.index, &mut false) else {
            return Err(reply.invalid_response("an answer without choices"));
        };
        if let Some(error) = choice.error.filter(|error| !error.is_null()) {
            return Err(reply.failure(error));
        }
        let mut message = choice.message.unwrap_or_default();
        let mut kept = Kept::default();
        message.keep(&mut kept);
        draft.thinking.extend(message.thinking());
        let is_refused = message.refusal.as_ref().is_some_and(|refusal| !refusal.is_empty());
        draft.text.extend(message.content.map(AnswerContent::into_text));
        draft.text.extend(message.refusal);
        for piece in message.tool_calls.unwrap_or_default() {
            let mut call = CallDraft::default();
            take_piece(&mut call, piece);
            draft.calls.push(call);
        }
        finish(draft, kept, is_refused, choice.finish_reason.as_deref(), reply)
    }
}

/// Takes a piece of a call. Id and name are whole where they come; some endpoints repeat them.
pub(super) fn take_piece(call: &mut CallDraft, piece: CallPiece) {
    if call.id.is_empty() {
        call.id = piece.id.unwrap_or_default();
    }
    let function = piece.function.unwrap_or_default();
    if call.name.is_empty() {
        call.name = function.name.unwrap_or_default();
    }
    call.take(function.arguments);
    call.kept = piece.extra_content.or(call.kept.take());
}

pub(super) fn finish(
    mut draft: Draft,
    kept: Kept,
    is_refused: bool,
    finish_reason: Option<&str>,
    reply: &Reply<'_>,
) -> Result<ModelResponse, ProviderError> {
    // One that is not known is taken for no other.
    let reason = match finish_reason {
        None | Some("") => return Err(ProviderError::stream_truncated("a finish reason")),
        Some("stop" | "eos") => StopReason::End,
        Some("tool_calls" | "function_call") => StopReason::ToolUse,
        Some("length") => StopReason::MaxTokens,
        Some("content_filter") => StopReason::ContentFilter,
        // Mistral's: the context was full.
        Some("model_length") => StopReason::ContextExceeded,
        Some(word) => reply.unknown_stop(word),
    };
    let stop_reason = match reason {
        StopReason::End | StopReason::ToolUse if is_refused => StopReason::Refusal,
        // Several endpoints say `stop` beside their tool calls.
        StopReason::End if !draft.calls.is_empty() => StopReason::ToolUse,
        reason => reason,
    };
    keep(&mut draft, kept);
    Ok(draft.finish(stop_reason, reply))
}

/// Keeps what the endpoint wants back of the message and of its calls.
fn keep(draft: &mut Draft, kept: Kept) {
    draft.kept.extend(kept.into_part(!draft.calls.is_empty()));
    for (place, call) in draft.calls.iter_mut().enumerate() {
        draft.kept.extend(call.kept.take().and_then(|extra| call_part(extra, place)));
        // A gateway may have put into a long id what it wants back.
        draft.kept.extend(kept_id(&call.id).filter(|_| !call.id.is_empty()));
    }
}
