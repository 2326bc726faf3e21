//! Decoding of streams.

use std::ops::ControlFlow;

use backstop_provider::{ModelResponse, ProviderError};
use backstop_provider_http::{Draft, Reply, SseEvent, Stream, lenient};
use serde::Deserialize;
use serde_json::Value;

use super::calls::Calls;
use super::content::{ContentPiece, thought_text};
use super::kept::KeptFields;
use super::omitted::Omitted;
use super::response::{ChatAnswerMessage, ChatUsage, GroqField, asked_for, finish};
use crate::usage::Counts;

#[derive(Deserialize, Default)]
struct ChatChunk {
    choices: Option<Vec<ChunkChoice>>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    usage: Option<ChatUsage>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    x_groq: Option<GroqField>,
}

#[derive(Deserialize)]
struct ChunkChoice {
    #[serde(default, deserialize_with = "lenient::count")]
    index: Option<u64>,
    delta: Option<ChatAnswerMessage>,
    #[serde(default, deserialize_with = "lenient::text")]
    finish_reason: Option<String>,
    error: Option<Value>,
    /// Moonshot's field.
    #[serde(default, deserialize_with = "lenient::maybe")]
    usage: Option<ChatUsage>,
}

/// An answer assembled from chunks. It ends with `[DONE]` after a finish reason.
#[derive(Default)]
pub struct ChatStream {
    draft: Draft,
    counts: Counts,
    calls: Calls,
    /// Fields of the message to send back.
    kept: KeptFields,
    is_refused: bool,
    finish_reason: Option<String>,
    /// The parts of the end that the endpoint omits.
    omits: Omitted,
    is_done: bool,
    has_warned: bool,
}

impl Stream for ChatStream {
    type Frame = SseEvent;

    fn take(
        &mut self,
        event: SseEvent,
        reply: &Reply<'_>,
    ) -> Result<ControlFlow<()>, ProviderError> {
        if event.data.trim() == "[DONE]" {
            self.is_done = true;
            return Ok(ControlFlow::Break(()));
        }
        let chunk = match reply.decode(event.data.as_bytes()) {
            // OpenRouter sends an error after the finish reason of an answer that it cut at its limit.
            Err(ProviderError::InvalidRequest { .. }) if self.is_cut() => {
                serde_json::from_str::<ChatChunk>(&event.data).unwrap_or_default()
            }
            chunk => chunk?,
        };
        self.bill(chunk.usage, reply);
        self.bill(chunk.x_groq.and_then(|field| field.usage), reply);
        let choice = asked_for(chunk.choices, |choice| choice.index, &mut self.has_warned);
        let Some(choice) = choice else { return Ok(ControlFlow::Continue(())) };
        reply.refuse_failure(choice.error)?;
        self.bill(choice.usage, reply);
        self.add(choice.delta.unwrap_or_default(), reply)?;
        let reason = choice.finish_reason.filter(|reason| !reason.is_empty());
        self.finish_reason = reason.or(self.finish_reason.take());
        Ok(ControlFlow::Continue(()))
    }

    fn held_bytes(&self) -> usize {
        self.draft.held_bytes() + self.calls.held_bytes() + self.kept.held_bytes()
    }

    fn finish(mut self, reply: &Reply<'_>) -> Result<ModelResponse, ProviderError> {
        if !self.is_done && !self.omits.done {
            return Err(ProviderError::stream_truncated("`[DONE]`"));
        }
        self.draft.calls = self.calls.into_drafts();
        // Only the end marker shows that such an answer was not cut off.
        let is_ended = self.is_done && self.omits.finish_reason;
        let reason = self.finish_reason.as_deref().or(is_ended.then_some("stop"));
        finish(self.draft, self.kept, self.is_refused, reason, reply)
    }
}

impl ChatStream {
    pub(super) fn new(omits: Omitted) -> Self {
        Self { omits, ..Self::default() }
    }

    /// Returns whether the finish reason is the output limit.
    fn is_cut(&self) -> bool {
        self.finish_reason.as_deref() == Some("length")
    }

    fn bill(&mut self, usage: Option<ChatUsage>, reply: &Reply<'_>) {
        if let Some(usage) = usage {
            self.counts.update(usage.into());
            self.draft.bill(self.counts.billed_tokens(), reply);
        }
    }

    fn add(
        &mut self,
        mut piece: ChatAnswerMessage,
        reply: &Reply<'_>,
    ) -> Result<(), ProviderError> {
        piece.keep(&mut self.kept, true);
        let calls = piece.take_calls();
        self.draft.think(piece.thinking().unwrap_or_default(), reply);
        if piece.has_images() {
            self.draft.note_media("image");
        }
        let refusal = piece.refusal.filter(|refusal| !refusal.is_empty());
        self.is_refused |= refusal.is_some();
        let content = piece.content.map(|content| content.0).unwrap_or_default();
        for piece in content.into_iter().chain(refusal.map(ContentPiece::Text)) {
            match piece {
                ContentPiece::Text(text) => self.draft.say(&text, reply),
                ContentPiece::Thought(thought) => {
                    self.draft.think(&thought_text(&thought), reply);
                    self.kept.push_thought(self.draft.text.len(), thought, true);
                }
            }
        }
        match self.calls.take(calls) {
            true => Ok(()),
            false => Err(reply.invalid_response("too many tool calls")),
        }
    }
}
