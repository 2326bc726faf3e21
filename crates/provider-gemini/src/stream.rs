//! Decoding of streams.

use std::ops::ControlFlow;

use backstop_provider::{ModelResponse, ProviderError};
use backstop_provider_http::{CallDraft, Draft, Reply, SseEvent, Stream};
use layer0::message::{StatePart, StopReason};
use layer0::usage::TokenUsage;
use serde_json::json;
use serde_json::value::RawValue;

use crate::partial::PartialArguments;
use crate::response::{
    AnswerPart, GeminiAnswerCall, GeminiResponse, PromptFeedback, Signed, update_billed,
};

/// An answer assembled from pieces. The protocol has no end marker but a finish reason, which some
/// models send with every piece: the last one counts.
#[derive(Default)]
pub struct GenerateStream {
    draft: Draft,
    usage: TokenUsage,
    /// The arguments of the last call while they are streamed.
    open_arguments: Option<PartialArguments>,
    /// Whether a call began before the arguments of the last one had ended.
    is_cut: bool,
    finish_reason: Option<String>,
}

impl Stream for GenerateStream {
    type Frame = SseEvent;

    fn take(
        &mut self,
        event: SseEvent,
        reply: &Reply<'_>,
    ) -> Result<ControlFlow<()>, ProviderError> {
        // Gateways end the streams of every protocol as those of OpenAI.
        if event.data.trim() == "[DONE]" {
            return Ok(ControlFlow::Break(()));
        }
        self.add(reply.decode(event.data.as_bytes())?, reply)?;
        Ok(ControlFlow::Continue(()))
    }

    fn held_bytes(&self) -> usize {
        let open = self.open_arguments.as_ref().map_or(0, PartialArguments::held_bytes);
        self.draft.held_bytes() + open
    }

    fn finish(mut self, reply: &Reply<'_>) -> Result<ModelResponse, ProviderError> {
        let is_cut = self.is_cut || self.open_arguments.is_some();
        self.end_call();
        let reason = match self.finish_reason.as_deref() {
            None | Some("") => return Err(ProviderError::stream_truncated("a finish reason")),
            Some(reason) => read_finish_reason(reason, reply)?,
        };
        let stop_reason = match reason {
            // The protocol has the same reason for calls as for the end.
            StopReason::End if !self.draft.calls.is_empty() => StopReason::ToolUse,
            reason => reason,
        };
        if is_cut && stop_reason.lets_calls_run() {
            return Err(ProviderError::stream_truncated("the end of a call"));
        }
        self.draft.refuse_media_alone(&stop_reason)?;
        Ok(self.draft.finish(stop_reason, reply))
    }
}

impl GenerateStream {
    /// Adds a whole response, or the next piece of one.
    pub(crate) fn add(
        &mut self,
        response: GeminiResponse,
        reply: &Reply<'_>,
    ) -> Result<(), ProviderError> {
        if let Some(usage) = response.usage_metadata {
            self.usage = update_billed(self.usage, &usage);
            self.draft.bill(self.usage, reply);
        }
        if let Some(error) = response.prompt_feedback.and_then(|it| blocked_prompt_error(it, reply))
        {
            return Err(error);
        }
        // Further candidates are only sent on request.
        let mut candidates = response.candidates.unwrap_or_default().into_iter();
        let candidate = candidates.find(|candidate| candidate.index.unwrap_or_default() == 0);
        let Some(candidate) = candidate else { return Ok(()) };
        let parts = candidate.content.and_then(|content| content.parts).unwrap_or_default();
        for part in parts {
            self.push(part, reply)?;
        }
        self.finish_reason = candidate.finish_reason.or(self.finish_reason.take());
        Ok(())
    }

    fn push(&mut self, part: AnswerPart, reply: &Reply<'_>) -> Result<(), ProviderError> {
        let draft = &mut self.draft;
        if let Some(served) = part.to_served_part() {
            draft.keep_text(served);
            return Ok(());
        }
        if let Some(signature) = part.thought_signature.filter(|it| !it.is_empty()) {
            // A stream may end with an empty text that has a signature.
            let (of, calls_before) = match &part.function_call {
                Some(_) => (Signed::Call, draft.calls.len()),
                None => (Signed::Text, 0),
            };
            let mut kept = StatePart::new(json!({ of.as_str(): signature }));
            kept.calls_before = calls_before;
            draft.kept.push(kept);
        }
        match part.text {
            Some(text) if part.thought == Some(true) => draft.think(&text, reply),
            Some(text) => draft.say(&text, reply),
            None => {}
        }
        if let Some(data) =
            part.inline_data.or(part.file_data).filter(|_| part.thought != Some(true))
        {
            draft.note_media(&data.mime_type);
        }
        match part.function_call {
            Some(call) => self.take_call(call, reply),
            None => Ok(()),
        }
    }

    /// Adds a call, or a piece of the last one, which has no name.
    fn take_call(
        &mut self,
        call: GeminiAnswerCall,
        reply: &Reply<'_>,
    ) -> Result<(), ProviderError> {
        let states_nothing = call.args.is_none() && call.partial_args.is_none();
        if !call.name.is_empty() {
            self.is_cut |= self.open_arguments.is_some();
            self.end_call();
            let mut draft = CallDraft::new(call.id.unwrap_or_default(), call.name);
            draft.take(call.args);
            self.draft.calls.push(draft);
        } else if self.open_arguments.is_none() {
            let why = "a call without a name";
            return if states_nothing { Ok(()) } else { Err(reply.invalid_response(why)) };
        } else if let (Some(args), Some(last)) = (call.args, self.draft.calls.last_mut()) {
            last.take(Some(args));
        }
        if call.will_continue || call.partial_args.is_some() {
            let arguments = self.open_arguments.get_or_insert_default();
            if let Some(pieces) = call.partial_args {
                arguments.take(&pieces);
            }
        }
        if !call.will_continue {
            self.end_call();
        }
        Ok(())
    }

    /// Adds the streamed arguments to the last call.
    fn end_call(&mut self) {
        if let (Some(arguments), Some(last)) =
            (self.open_arguments.take(), self.draft.calls.last_mut())
        {
            last.take(RawValue::from_string(arguments.into_text()).ok());
        }
    }
}

/// Classifies a blocked prompt by the table, like any other failure.
fn blocked_prompt_error(feedback: PromptFeedback, reply: &Reply<'_>) -> Option<ProviderError> {
    let reason = feedback.block_reason?;
    let message = match feedback.block_reason_message {
        Some(message) => format!("the prompt was blocked: `{reason}`: {message}"),
        None => format!("the prompt was blocked: `{reason}`"),
    };
    let body = json!({ "message": message, "promptFeedback": { "blockReason": reason } });
    Some(reply.failure(body))
}

/// Maps a finish reason; an unknown one is not mapped to another.
fn read_finish_reason(reason: &str, reply: &Reply<'_>) -> Result<StopReason, ProviderError> {
    Ok(match reason {
        "STOP" => StopReason::End,
        "MAX_TOKENS" => StopReason::MaxTokens,
        "SAFETY"
        | "RECITATION"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "MODEL_ARMOR"
        | "LANGUAGE"
        | "ESCALATION"
        | "PUP_LIMITED_DISABLED"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => StopReason::ContentFilter,
        "MALFORMED_FUNCTION_CALL"
        | "UNEXPECTED_TOOL_CALL"
        | "MALFORMED_RESPONSE"
        | "TOO_MANY_TOOL_CALLS"
        | "MISSING_THOUGHT_SIGNATURE" => StopReason::Malformed,
        word => reply.unknown_stop(word)?,
    })
}
