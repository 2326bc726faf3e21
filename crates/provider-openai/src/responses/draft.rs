//! An answer that is being put together, from items or from pieces of them.

use std::collections::BTreeMap;

use layer0::message::{StatePart, StopReason, ToolCall};
use layer0::usage::TokenUsage;
use provider::{ModelResponse, StreamSink};
use provider_http::{Endpoint, parse_arguments};
use serde_json::{Value, json};

use super::response::{CallItem, Item, WireResponse};

/// What stands between two messages, and between two parts of a reasoning summary.
const BREAK: &str = "\n\n";

/// An answer that is being put together.
#[derive(Default)]
pub(crate) struct Draft<'s> {
    sink: Option<&'s dyn StreamSink>,
    text: String,
    /// The items that the text is of, and where in it each begins.
    text_starts: Vec<(u64, usize)>,
    thinking: String,
    thinking_place: Thought,
    refused: bool,
    calls: Vec<CallDraft>,
    /// Encrypted reasoning, by the item that it is.
    kept: BTreeMap<u64, Value>,
    usage: TokenUsage,
}

/// Where a piece of thinking stands: a part of what an item says, or of its summary.
#[derive(Default, Clone, Copy, PartialEq)]
pub(crate) struct Thought {
    pub(crate) item: u64,
    pub(crate) is_summary: bool,
    pub(crate) part: u64,
}

#[derive(Default)]
struct CallDraft {
    /// The item that the call is.
    item: u64,
    id: String,
    name: String,
    arguments: String,
}

impl<'s> Draft<'s> {
    /// Begins an answer; what it says goes to the sink.
    pub(crate) fn new(sink: Option<&'s dyn StreamSink>) -> Self {
        Self { sink, ..Self::default() }
    }

    pub(crate) fn has_text(&self) -> bool {
        !self.text.is_empty()
    }

    pub(crate) fn has_thinking(&self) -> bool {
        !self.thinking.is_empty()
    }

    pub(crate) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    pub(crate) fn take_usage(&mut self, response: &WireResponse) {
        let Some(usage) = response.usage.as_ref().map(TokenUsage::from) else { return };
        self.usage = usage;
        if let Some(sink) = self.sink {
            sink.usage(usage);
        }
    }

    /// Keeps what an item wants back; the whole answer repeats what its stream told.
    ///
    /// Without its id: one that was not stored cannot be looked up.
    pub(crate) fn keep(&mut self, at: u64, item: &Item) {
        let Item::Reasoning { summary, encrypted_content: Some(content), .. } = item else {
            return;
        };
        let texts = summary.iter().flatten().filter_map(|part| part.text.as_deref());
        let summary: Vec<Value> =
            texts.map(|text| json!({ "type": "summary_text", "text": text })).collect();
        let item = json!({ "type": "reasoning", "summary": summary, "encrypted_content": content });
        self.kept.insert(at, item);
    }

    /// Takes a whole item.
    pub(crate) fn take_item(&mut self, at: u64, item: Item) {
        self.keep(at, &item);
        match item {
            Item::FunctionCall(item) => self.take_call(Some(at), item),
            Item::Message { content } => {
                for part in content.unwrap_or_default() {
                    self.say(at, &part.text.unwrap_or_default());
                    self.refuse(at, &part.refusal.unwrap_or_default());
                }
            }
            Item::Reasoning { summary, content, encrypted_content: _ } => {
                for (is_summary, parts) in [(true, summary), (false, content)] {
                    for (part, said) in (0..).zip(parts.unwrap_or_default()) {
                        let place = Thought { item: at, is_summary, part };
                        self.think(place, &said.text.unwrap_or_default());
                    }
                }
            }
            Item::Other => {}
        }
    }

    /// Was the last thing that was said or thought said by this item?
    pub(crate) fn has_heard(&self, at: u64, item: &Item) -> bool {
        match item {
            Item::Message { .. } => self.text_starts.last().is_some_and(|(item, _)| *item == at),
            Item::Reasoning { .. } => self.has_thinking() && self.thinking_place.item == at,
            Item::FunctionCall(_) | Item::Other => true,
        }
    }

    /// Takes a call, or what more is known of one. Where an endpoint leaves the index out, a new id
    /// begins a new call.
    pub(crate) fn take_call(&mut self, at: Option<u64>, item: CallItem) {
        let known = self.calls.iter().find(|call| Some(&call.id) == item.call_id.as_ref());
        let at = at.or(known.map(|call| call.item));
        let next = self.calls.last().map_or(0, |last| last.item.saturating_add(1));
        let call = self.call(at.unwrap_or(next));
        settle(&mut call.id, item.call_id);
        settle(&mut call.name, item.name);
        settle(&mut call.arguments, item.arguments);
    }

    /// Takes a piece of a call's arguments; of the last call's where there is no index.
    pub(crate) fn take_arguments(&mut self, at: Option<u64>, piece: &str) {
        self.call_or_last(at).arguments.push_str(piece);
    }

    /// Takes a call's arguments as a whole.
    pub(crate) fn settle_arguments(&mut self, at: Option<u64>, arguments: Option<String>) {
        settle(&mut self.call_or_last(at).arguments, arguments);
    }

    fn call_or_last(&mut self, at: Option<u64>) -> &mut CallDraft {
        let last = self.calls.last().map_or(0, |last| last.item);
        self.call(at.unwrap_or(last))
    }

    /// Returns the call that is this item; calls stand in the order of items.
    fn call(&mut self, at: u64) -> &mut CallDraft {
        let position = self.calls.partition_point(|call| call.item < at);
        if self.calls.get(position).is_none_or(|call| call.item != at) {
            self.calls.insert(position, CallDraft { item: at, ..CallDraft::default() });
        }
        &mut self.calls[position]
    }

    /// Takes a piece of text. A message that follows another begins a paragraph.
    pub(crate) fn say(&mut self, at: u64, piece: &str) {
        if piece.is_empty() {
            return;
        }
        let begins = self.text_starts.last().is_none_or(|(item, _)| *item != at);
        let breaks = self.has_text() && begins;
        if begins {
            self.text_starts.push((at, self.text.len()));
        }
        for piece in [if breaks { BREAK } else { "" }, piece] {
            self.text.push_str(piece);
            if let Some(sink) = self.sink.filter(|_| !piece.is_empty()) {
                sink.text(piece);
            }
        }
    }

    pub(crate) fn refuse(&mut self, at: u64, piece: &str) {
        self.refused |= !piece.is_empty();
        self.say(at, piece);
    }

    /// Takes a piece of thinking. A part that follows another begins a paragraph.
    pub(crate) fn think(&mut self, place: Thought, piece: &str) {
        if piece.is_empty() {
            return;
        }
        let breaks = self.has_thinking() && self.thinking_place != place;
        self.thinking_place = place;
        for piece in [if breaks { BREAK } else { "" }, piece] {
            self.thinking.push_str(piece);
            if let Some(sink) = self.sink.filter(|_| !piece.is_empty()) {
                sink.thinking(piece);
            }
        }
    }

    pub(crate) fn finish(self, endpoint: &Endpoint, ending: StopReason) -> ModelResponse {
        let stop_reason = match ending {
            StopReason::End if self.refused => StopReason::Refusal,
            StopReason::End if !self.calls.is_empty() => StopReason::ToolUse,
            ending => ending,
        };
        let kept = self.kept.into_iter().map(|(at, data)| {
            let behind = self.text_starts.iter().find(|(item, _)| *item > at);
            let text_before = behind.map_or(self.text.len(), |(_, start)| *start);
            let calls_before = self.calls.partition_point(|call| call.item < at);
            StatePart { text_before, calls_before, data }
        });
        let provider_state = endpoint.state_of(kept.collect());
        let call = |draft: CallDraft| ToolCall {
            id: draft.id.into(),
            name: draft.name.into(),
            arguments: parse_arguments(&draft.arguments).into(),
        };
        ModelResponse {
            text: self.text.into(),
            thinking: (!self.thinking.is_empty()).then(|| self.thinking.into()),
            provider_state,
            tool_calls: self.calls.into_iter().map(call).collect(),
            stop_reason,
            usage: self.usage,
        }
    }
}

/// Replaces what is known by what is said, if anything is.
fn settle(field: &mut String, value: Option<String>) {
    if let Some(value) = value.filter(|value| !value.is_empty()) {
        *field = value;
    }
}
