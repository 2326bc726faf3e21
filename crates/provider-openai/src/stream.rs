//! What comes back as a stream.

use layer0::usage::TokenUsage;
use provider::{ModelResponse, ProviderError, StreamSink};
use provider_http::{CallDraft, Events, lenient};
use serde::Deserialize;
use serde_json::Value;

use crate::response::{CallPiece, Content, Draft, Said, WireUsage, asked_for, take_piece};

#[derive(Deserialize)]
struct Chunk {
    choices: Option<Vec<ChunkChoice>>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct ChunkChoice {
    #[serde(default, deserialize_with = "lenient::count")]
    index: Option<u64>,
    delta: Option<Said>,
    #[serde(default, deserialize_with = "lenient::text")]
    finish_reason: Option<String>,
    error: Option<Value>,
}

/// Reads a stream to its end, which is `[DONE]` after a finish reason.
pub(crate) async fn read(
    mut events: Events<'_>,
    sink: Option<&dyn StreamSink>,
    omits_done: bool,
) -> Result<ModelResponse, ProviderError> {
    let mut assembly = Assembly { sink, draft: Draft::default(), indices: Vec::new() };
    let mut finish_reason = None;
    let mut warned = false;
    while let Some(event) = events.next().await? {
        if event.data.trim() == "[DONE]" {
            return assembly.draft.finish(events.endpoint(), finish_reason.as_deref());
        }
        let chunk: Chunk = events.decode(&event)?;
        if let Some(usage) = chunk.usage {
            assembly.take_usage(usage.into());
        }
        let Some(choice) = asked_for(chunk.choices, |choice| choice.index, &mut warned) else {
            continue;
        };
        if let Some(error) = choice.error.filter(|error| !error.is_null()) {
            return Err(events.endpoint().failure(error, events.retry_after()));
        }
        assembly.take(choice.delta.unwrap_or_default());
        let reason = choice.finish_reason.filter(|reason| !reason.is_empty());
        finish_reason = reason.or(finish_reason);
    }
    if omits_done {
        return assembly.draft.finish(events.endpoint(), finish_reason.as_deref());
    }
    Err(ProviderError::stream_truncated("`[DONE]`"))
}

struct Assembly<'s> {
    sink: Option<&'s dyn StreamSink>,
    draft: Draft,
    /// The protocol's index of each call of the draft.
    indices: Vec<u64>,
}

impl Assembly<'_> {
    fn take_usage(&mut self, usage: TokenUsage) {
        self.draft.usage = usage;
        if let Some(sink) = self.sink {
            sink.usage(usage);
        }
    }

    fn take(&mut self, piece: Said) {
        if let Some(thinking) = piece.thinking() {
            self.draft.thinking.push_str(thinking);
            if let Some(sink) = self.sink {
                sink.thinking(thinking);
            }
        }
        let refusal = piece.refusal.filter(|refusal| !refusal.is_empty());
        self.draft.refused |= refusal.is_some();
        let text = piece.content.map(Content::into_text).into_iter().chain(refusal);
        for text in text.filter(|text| !text.is_empty()) {
            self.draft.text.push_str(&text);
            if let Some(sink) = self.sink {
                sink.text(&text);
            }
        }
        for (place, call) in piece.tool_calls.unwrap_or_default().into_iter().enumerate() {
            self.take_call(place, call);
        }
    }

    /// Merges pieces of calls by index. A new id begins a new call, also where an endpoint leaves the
    /// index out or gives all calls the same; without both, each piece of one list is of another call.
    fn take_call(&mut self, place: usize, piece: CallPiece) {
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
