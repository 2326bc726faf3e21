//! An answer that is being put together, from items or from pieces of them.

use layer0::message::{StatePart, StopReason};
use layer0::usage::TokenUsage;
use provider::{ModelResponse, StreamSink};
use provider_http::{Endpoint, finish_calls};
use serde_json::value::RawValue;

use super::items::{Body, Items, Kind};
use super::response::{CallItem, Item, WireResponse};

/// What stands between two messages, and between two parts of a reasoning summary.
pub(super) const BREAK: &str = "\n\n";

/// Where in the answer something stands, as far as the endpoint tells.
#[derive(Default, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) index: Option<u64>,
    pub(crate) item_id: Option<&'a str>,
}

/// A part of what an item thinks, or of its summary.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Thought {
    pub(crate) is_summary: bool,
    pub(crate) part: u64,
}

/// An answer that is being put together.
#[derive(Default)]
pub(crate) struct Draft<'s> {
    sink: Option<&'s dyn StreamSink>,
    items: Items,
    /// The item whose text the listener heard last.
    text_at: Option<u64>,
    /// The part of the item whose thinking the listener heard last.
    thought_at: Option<(u64, Thought)>,
    usage: TokenUsage,
}

impl<'s> Draft<'s> {
    /// Begins an answer; what it says goes to the sink.
    pub(crate) fn new(sink: Option<&'s dyn StreamSink>) -> Self {
        Self { sink, ..Self::default() }
    }

    pub(crate) fn take_usage(&mut self, response: &WireResponse) {
        let Some(usage) = response.usage.as_ref().map(TokenUsage::from) else { return };
        self.usage = usage;
        if let Some(sink) = self.sink {
            sink.usage(usage);
        }
    }

    /// Takes a piece of text. A message that follows another begins a paragraph.
    pub(crate) fn say(&mut self, place: Place<'_>, piece: &str, is_refusal: bool) {
        if piece.is_empty() {
            return;
        }
        let (at, item) = self.items.at(place, Kind::Text);
        if let Body::Text { text, is_refused } = &mut item.body {
            text.push_str(piece);
            *is_refused |= is_refusal;
        }
        self.tell_text(at, piece);
    }

    /// Takes a piece of thinking. A part that follows another begins a paragraph.
    pub(crate) fn think(&mut self, place: Place<'_>, part: Thought, piece: &str) {
        if piece.is_empty() {
            return;
        }
        let (at, item) = self.items.at(place, Kind::Thought);
        if let Body::Thought { parts, .. } = &mut item.body {
            match parts.last_mut() {
                Some((last, text)) if *last == part => text.push_str(piece),
                _ => parts.push((part, piece.to_owned())),
            }
        }
        self.tell_thought(at, part, piece);
    }

    /// Takes a call, or what more is known of one.
    pub(crate) fn take_call(&mut self, place: Place<'_>, item: CallItem, is_done: bool) {
        self.items.take_call(place, item, is_done);
    }

    /// Takes a piece of a call's arguments; of the last call's where there is no index.
    pub(crate) fn take_arguments(&mut self, place: Place<'_>, piece: &str) {
        if let Some(call) = self.items.call(place) {
            call.push(piece);
        }
    }

    /// Takes a call's arguments as a whole.
    pub(crate) fn settle_arguments(&mut self, place: Place<'_>, arguments: Option<Box<RawValue>>) {
        if let Some(call) = self.items.call(place) {
            call.settle(arguments);
        }
    }

    /// Takes an item that is done. As a rule it was heard piece by piece; what it says as a whole
    /// settles it.
    pub(crate) fn take_done(&mut self, place: Place<'_>, item: Item) {
        let heard = self.items.clone();
        let at = self.items.take_done(place, item);
        self.tell_more(&heard, at);
    }

    /// Takes the whole answer, which settles all that was heard; what it has nothing of stays as it
    /// was heard, for some endpoints end with an answer that is empty, or with a part of it.
    pub(crate) fn settle(&mut self, output: Vec<Item>) {
        let mut whole = Items::default();
        for (at, item) in (0..).zip(output) {
            whole.take_done(Place { index: Some(at), item_id: None }, item);
        }
        let heard = std::mem::take(&mut self.items);
        self.items = whole.or(heard.clone());
        for at in self.items.places() {
            self.tell_more(&heard, at);
        }
    }

    /// Tells the listener what an item says beyond what was heard of it. What was heard differently
    /// cannot be taken back.
    fn tell_more(&mut self, heard: &Items, at: u64) {
        if self.sink.is_none() {
            return;
        }
        let text = self.items.text_of(at);
        if let Some(more) = text.strip_prefix(&heard.text_of(at)).filter(|it| !it.is_empty()) {
            self.tell_text(at, more);
        }
        if heard.thoughts_of(at).is_empty() {
            for (part, text) in self.items.thoughts_of(at) {
                self.tell_thought(at, part, &text);
            }
        }
    }

    fn tell_text(&mut self, at: u64, piece: &str) {
        let Some(sink) = self.sink else { return };
        if self.text_at.is_some_and(|last| last != at) {
            sink.text(BREAK);
        }
        self.text_at = Some(at);
        sink.text(piece);
    }

    fn tell_thought(&mut self, at: u64, part: Thought, piece: &str) {
        let Some(sink) = self.sink else { return };
        if self.thought_at.is_some_and(|last| last != (at, part)) {
            sink.thinking(BREAK);
        }
        self.thought_at = Some((at, part));
        sink.thinking(piece);
    }

    pub(crate) fn finish(self, endpoint: &Endpoint, ending: StopReason) -> ModelResponse {
        let mut said = Said::default();
        for item in self.items.into_sorted() {
            said.is_cut |= item.is_cut;
            match item.body {
                Body::Text { text, is_refused } => {
                    said.is_refused |= is_refused;
                    add(&mut said.text, &text);
                }
                Body::Thought { parts, data } => {
                    parts.iter().for_each(|(_, text)| add(&mut said.thinking, text));
                    let (text_before, calls_before) = (said.text.len(), said.calls.len());
                    let kept = data.map(|data| StatePart { text_before, calls_before, data });
                    said.kept.extend(kept);
                }
                Body::Call(call) => said.calls.push(call),
            }
        }
        let stop_reason = match ending {
            StopReason::End if said.is_refused => StopReason::Refusal,
            // An answer may say that it is complete, and of a part of it that it is not.
            StopReason::End if said.is_cut => StopReason::MaxTokens,
            StopReason::End if !said.calls.is_empty() => StopReason::ToolUse,
            ending => ending,
        };
        ModelResponse {
            text: said.text.into(),
            thinking: (!said.thinking.is_empty()).then(|| said.thinking.into()),
            provider_state: endpoint.state_of(said.kept),
            tool_calls: finish_calls(said.calls, &stop_reason),
            stop_reason,
            usage: self.usage,
        }
    }
}

/// What all items say.
#[derive(Default)]
struct Said {
    text: String,
    thinking: String,
    calls: Vec<provider_http::CallDraft>,
    kept: Vec<StatePart>,
    is_refused: bool,
    is_cut: bool,
}

/// Adds a paragraph.
fn add(text: &mut String, paragraph: &str) {
    if !text.is_empty() && !paragraph.is_empty() {
        text.push_str(BREAK);
    }
    text.push_str(paragraph);
}
