//! What comes back as a stream.

use std::ops::ControlFlow;

use backstop_provider::{ModelResponse, ProviderError};
use backstop_provider_http::{CallDraft, Draft, Event, Reply, Stream, lenient};
use serde::Deserialize;
use serde_json::Value;

use super::kept::Kept;
use super::response::{
    AnswerContent, AnswerMessage, CallPiece, ChatUsage, asked_for, finish, take_piece,
};

#[derive(Deserialize)]
struct Chunk {
    choices: Option<Vec<ChunkChoice>>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    usage: Option<ChatUsage>,
}

#[derive(Deserialize)]
struct ChunkChoice {
    #[serde(default, deserialize_with = "lenient::count")]
    index: Option<u64>,
    delta: Option<AnswerMessage>,
    #[serde(default, deserialize_with = "lenient::text")]
    finish_reason: Option<String>,
    error: Option<Value>,
}

/// An answer as its chunks tell it; its end is `[DONE]` after a finish reason.
#[derive(Default)]
pub struct ChatStream {
    draft: Draft,
    /// The protocol's index of each call of the draft.
    indices: Vec<u64>,
    /// What the endpoint wants back of the message.
    kept: Kept,
    is_refused: bool,
    finish_reason: Option<String>,
    /// Was `[DONE]` said, or need it not be?
    is_done: bool,
    has_warned: bool,
}

impl Stream for ChatStream {
    type Frame = Event;

    fn take(&mut self, event: Event, reply: &Reply<'_>) -> Result<ControlFlow<()>, ProviderError> {
        if event.data.trim() == "[DONE]" {
            self.is_done = true;
            return Ok(ControlFlow::Break(()));
        }
        let chunk: Chunk = reply.decode(event.data.as_bytes())?;
        if let Some(usage) = chunk.usage {
            self.draft.bill(usage.into(), reply);
        }
        let choice = asked_for(chunk.choices, |choice| choice.index, &mut self.has_warned);
        let Some(choice) = choice else { return Ok(ControlFlow::Continue(())) };
        if let Some(error) = choice.error.filter(|error| !error.is_null()) {
            return Err(reply.failure(error));
        }
        self.add(choice.delta.unwrap_or_default(), reply);
        let reason = choice.finish_reason.filter(|reason| !reason.is_empty());
        self.finish_reason = reason.or(self.finish_reason.take());
        Ok(ControlFlow::Continue(()))
    }

    fn finish(self, reply: &Reply<'_>) -> Result<ModelResponse, ProviderError> {
        if !self.is_done {
            return Err(ProviderError::stream_truncated("`[DONE]`"));
        }
        finish(self.draft, self.kept, self.is_refused, self.finish_reason.as_deref(), reply)
    }
}

impl ChatStream {
    pub(super) fn new(omits_done: bool) -> Self {
        Self { is_done: omits_done, ..Self::default() }
    }

    fn add(&mut self, mut piece: AnswerMessage, reply: &Reply<'_>) {
        piece.keep(&mut self.kept);
        self.draft.think(piece.thinking().unwrap_or_default(), reply);
        let refusal = piece.refusal.filter(|refusal| !refusal.is_empty());
        self.is_refused |= refusal.is_some();
        for text in piece.content.map(AnswerContent::into_text).into_iter().chain(refusal) {
            self.draft.say(&text, reply);
        }
        for (place, call) in piece.tool_calls.unwrap_or_default().into_iter().enumerate() {
            self.add_call(place, call);
        }
    }

    /// Merges pieces of calls by index. A new id begins a new call, also where an endpoint leaves the
    /// index out or gives all calls the same; without both, each piece of one list is of another call.
    fn add_call(&mut self, place: usize, piece: CallPiece) {
        let calls = &self.draft.calls;
        let id = piece.id.as_deref().filter(|id| !id.is_empty());
        let position = match (piece.index, id) {
            (Some(index), id) => {
                self.indices.iter().rposition(|known| *known == index).filter(|at| {
                    id.is_none_or(|id| calls[*at].id.is_empty() || calls[*at].id == id)
                })
            }
            (None, Some(id)) => calls.iter().position(|call| call.id == id),
            (None, None) if place > 0 => None,
            (None, None) => calls.len().checked_sub(1),
        };
        let position = position.unwrap_or_else(|| {
            let index = piece.index.unwrap_or(self.draft.calls.len() as u64);
            let position = self.indices.partition_point(|known| *known <= index);
            self.indices.insert(position, index);
            self.draft.calls.insert(position, CallDraft::default());
            position
        });
        if let Some(call) = self.draft.calls.get_mut(position) {
            take_piece(call, piece);
        }
    }
}
