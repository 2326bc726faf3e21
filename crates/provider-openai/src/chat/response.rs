//! Decoding of whole responses, and of parts shared with streams.

use backstop_provider::{ModelResponse, ProviderError};
use backstop_provider_http::{Draft, Reply, kept_id, lenient};
use layer0::JsonText;
use layer0::message::StopReason;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::calls::{CallPiece, whole_call};
use super::content::{ChatAnswerContent, ContentPiece, thought_text};
use super::kept::{KeptFields, call_part};
use super::omitted::Omitted;
use crate::usage::Counts;

/// A whole response.
#[derive(Deserialize)]
pub struct ChatResponse {
    choices: Option<Vec<ChatChoice>>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    usage: Option<ChatUsage>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    x_groq: Option<GroqField>,
}

#[derive(Deserialize)]
struct ChatChoice {
    #[serde(default, deserialize_with = "lenient::count")]
    index: Option<u64>,
    message: Option<ChatAnswerMessage>,
    #[serde(default, deserialize_with = "lenient::text")]
    finish_reason: Option<String>,
    error: Option<Value>,
}

/// Returns the requested choice, the one with index 0. Others come only from an endpoint that sends
/// more choices than requested; `index` returns the index of a choice.
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

/// The message of the model, or one of its pieces.
#[derive(Deserialize, Default)]
pub(super) struct ChatAnswerMessage {
    pub(super) content: Option<ChatAnswerContent>,
    #[serde(default, deserialize_with = "lenient::text")]
    pub(super) refusal: Option<String>,
    /// The field of DeepSeek, llama.cpp and others.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(super) reasoning_content: Option<String>,
    /// The field of OpenRouter and newer vLLM.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(super) reasoning: Option<String>,
    /// Reasoning to send back to OpenRouter.
    #[serde(default, deserialize_with = "lenient::json")]
    pub(super) reasoning_details: Option<JsonText>,
    /// State to send back to Gemini's compatible endpoint.
    #[serde(default, deserialize_with = "lenient::json")]
    pub(super) extra_content: Option<JsonText>,
    tool_calls: Option<Vec<CallPiece>>,
    /// The only call, in the protocol's older form.
    #[serde(default, deserialize_with = "lenient::json")]
    function_call: Option<JsonText>,
    /// OpenRouter's images, which are not kept.
    #[serde(default, deserialize_with = "lenient::maybe")]
    images: Option<Vec<IgnoredAny>>,
}

impl ChatAnswerMessage {
    /// Keeps the fields to send back, of a whole message or of a piece of one.
    pub(super) fn keep(&mut self, kept: &mut KeptFields, is_piece: bool) {
        kept.push_reasoning(self.reasoning_content.as_deref(), self.reasoning.as_deref());
        kept.push_details(self.reasoning_details.take(), is_piece);
        kept.push_extra(self.extra_content.take());
    }

    /// Takes the calls, or the pieces of them.
    pub(super) fn take_calls(&mut self) -> Vec<CallPiece> {
        let mut calls = self.tool_calls.take().unwrap_or_default();
        // An endpoint may send one call in both forms.
        let only = self.function_call.take().filter(|_| calls.is_empty());
        calls.extend(only.and_then(|call| call.read().ok()).map(CallPiece::only));
        calls
    }

    pub(super) fn has_images(&self) -> bool {
        self.images.as_ref().is_some_and(|images| !images.is_empty())
    }

    pub(super) fn thinking(&self) -> Option<&str> {
        self.reasoning_content
            .as_deref()
            .or(self.reasoning.as_deref())
            .filter(|thinking| !thinking.is_empty())
    }
}

/// The token counts of an answer, in this protocol and in endpoints compatible with it.
#[derive(Deserialize, Default)]
pub(super) struct ChatUsage {
    #[serde(default, deserialize_with = "lenient::tokens")]
    prompt_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::tokens")]
    completion_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::tokens")]
    total_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    prompt_tokens_details: Option<PromptDetails>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    completion_tokens_details: Option<CompletionDetails>,
    /// DeepSeek's field.
    #[serde(default, deserialize_with = "lenient::tokens")]
    prompt_cache_hit_tokens: Option<u64>,
    /// Moonshot's field.
    #[serde(default, deserialize_with = "lenient::tokens")]
    cached_tokens: Option<u64>,
    /// Anthropic's fields, passed on by LiteLLM.
    #[serde(default, deserialize_with = "lenient::tokens")]
    cache_read_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::tokens")]
    cache_creation_input_tokens: Option<u64>,
}

#[derive(Deserialize, Default)]
struct PromptDetails {
    #[serde(default, deserialize_with = "lenient::tokens")]
    cached_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::tokens")]
    cache_write_tokens: Option<u64>,
}

#[derive(Deserialize, Default)]
struct CompletionDetails {
    #[serde(default, deserialize_with = "lenient::tokens")]
    reasoning_tokens: Option<u64>,
}

impl From<ChatUsage> for Counts {
    fn from(usage: ChatUsage) -> Self {
        let prompt = usage.prompt_tokens_details.unwrap_or_default();
        let completion = usage.completion_tokens_details.unwrap_or_default();
        let cached = [
            prompt.cached_tokens,
            usage.prompt_cache_hit_tokens,
            usage.cached_tokens,
            usage.cache_read_input_tokens,
        ];
        Self {
            input: usage.prompt_tokens,
            output: usage.completion_tokens,
            reasoning: completion.reasoning_tokens,
            total: usage.total_tokens,
            cached: cached.into_iter().flatten().max(),
            cache_written: prompt.cache_write_tokens.max(usage.cache_creation_input_tokens),
        }
    }
}

/// A field of Groq's with the usage of a stream.
#[derive(Deserialize)]
pub(super) struct GroqField {
    #[serde(default, deserialize_with = "lenient::maybe")]
    pub(super) usage: Option<ChatUsage>,
}

impl ChatResponse {
    pub(super) fn read(
        self,
        omits: Omitted,
        reply: &Reply<'_>,
    ) -> Result<ModelResponse, ProviderError> {
        let mut draft = Draft::default();
        if let Some(usage) = self.usage.or(self.x_groq.and_then(|field| field.usage)) {
            draft.bill(Counts::from(usage).billed_tokens(), reply);
        }
        let Some(choice) = asked_for(self.choices, |choice| choice.index, &mut false) else {
            return Err(reply.invalid_response("an answer without choices"));
        };
        reply.refuse_failure(choice.error)?;
        let mut message = choice.message.unwrap_or_default();
        let mut kept = KeptFields::default();
        message.keep(&mut kept, false);
        let calls = message.take_calls();
        draft.thinking.extend(message.thinking());
        if message.has_images() {
            draft.note_media("image");
        }
        let is_refused = message.refusal.as_ref().is_some_and(|refusal| !refusal.is_empty());
        for piece in message.content.map(|content| content.0).unwrap_or_default() {
            match piece {
                ContentPiece::Text(text) => draft.text.push_str(&text),
                ContentPiece::Thought(thought) => {
                    draft.thinking.push_str(&thought_text(&thought));
                    kept.push_thought(draft.text.len(), thought, false);
                }
            }
        }
        draft.text.extend(message.refusal);
        draft.calls = calls.into_iter().map(whole_call).collect();
        let reason = choice.finish_reason.as_deref().filter(|reason| !reason.is_empty());
        // The body is complete, otherwise it would not be JSON.
        let reason = reason.or(omits.finish_reason.then_some("stop"));
        finish(draft, kept, is_refused, reason, reply)
    }
}

pub(super) fn finish(
    mut draft: Draft,
    kept: KeptFields,
    is_refused: bool,
    finish_reason: Option<&str>,
    reply: &Reply<'_>,
) -> Result<ModelResponse, ProviderError> {
    // An unknown reason is not mapped to another one.
    let reason = match finish_reason {
        None | Some("") => return Err(ProviderError::stream_truncated("a finish reason")),
        Some("stop" | "eos") => StopReason::End,
        Some("tool_calls" | "function_call") => StopReason::ToolUse,
        Some("length") => StopReason::MaxTokens,
        Some("content_filter") => StopReason::ContentFilter,
        // Mistral's: the context was full.
        Some("model_length") => StopReason::ContextExceeded,
        Some(word) => reply.unknown_stop(word)?,
    };
    let stop_reason = match reason {
        StopReason::End | StopReason::ToolUse if is_refused => StopReason::Refusal,
        // Several endpoints send `stop` with their tool calls.
        StopReason::End if !draft.calls.is_empty() => StopReason::ToolUse,
        reason => reason,
    };
    draft.refuse_media_alone(&stop_reason)?;
    keep(&mut draft, kept);
    Ok(draft.finish(stop_reason, reply))
}

/// Keeps the fields of the message and of its calls to send back.
fn keep(draft: &mut Draft, kept: KeptFields) {
    draft.kept.extend(kept.into_parts(!draft.calls.is_empty()));
    for (place, call) in draft.calls.iter_mut().enumerate() {
        draft.kept.extend(call.kept.take().and_then(|extra| call_part(extra, place)));
        // A gateway may encode its own state in a long id.
        draft.kept.extend(kept_id(&call.id).filter(|_| !call.id.is_empty()));
    }
}
