//! An answer that is being assembled, from items or from pieces of them.

use backstop_provider::{ModelResponse, ProviderError};
use backstop_provider_http::{Draft, MAX_ANSWER_ITEMS, Reply, keep_field};
use layer0::message::StopReason;
use serde_json::value::RawValue;

use super::items::{ItemBody, ItemKind, ItemPosition, Items, Thought, Untold};
use super::paragraph::{BREAK, add};
use super::phase::Phases;
use super::response::{CallItem, ResponsesItem, WireResponse};
use super::served::ServedSteps;
use crate::usage::Counts;

/// An answer that is being assembled.
#[derive(Default)]
pub(super) struct ItemsDraft {
    items: Items,
    /// The item whose text was streamed last.
    text_at: Option<u64>,
    /// The item and the part whose thinking was streamed last.
    thought_at: Option<(u64, Thought)>,
}

impl ItemsDraft {
    /// Returns the approximate number of bytes held.
    pub(super) fn held_bytes(&self) -> usize {
        self.items.held_bytes()
    }

    /// Returns whether there are more items than can be compared with those of the whole answer.
    pub(super) const fn has_too_many(&self) -> bool {
        self.items.len() > MAX_ANSWER_ITEMS
    }

    /// Adds a piece of text. A message that follows another begins a paragraph.
    pub(super) fn say(
        &mut self,
        place: ItemPosition<'_>,
        piece: &str,
        is_refusal: bool,
        reply: &Reply<'_>,
    ) {
        if piece.is_empty() {
            return;
        }
        let (at, item) = self.items.text(place, piece);
        if let ItemBody::Text { text, is_refused, .. } = &mut item.body {
            text.push_str(piece);
            *is_refused |= is_refusal;
        }
        self.tell_text(at, piece, reply);
    }

    /// Adds a piece of thinking. A part that follows another begins a paragraph.
    pub(super) fn think(
        &mut self,
        place: ItemPosition<'_>,
        part: Thought,
        piece: &str,
        reply: &Reply<'_>,
    ) {
        if piece.is_empty() {
            return;
        }
        let (at, item) = self.items.at(place, ItemKind::Thought);
        if let ItemBody::Thought { parts, .. } = &mut item.body {
            match parts.last_mut() {
                Some((last, text)) if *last == part => text.push_str(piece),
                _ => parts.push((part, piece.to_owned())),
            }
        }
        self.tell_thought(at, part, piece, reply);
    }

    /// Adds a call, or further fields of a known one.
    pub(super) fn take_call(&mut self, place: ItemPosition<'_>, item: CallItem, is_done: bool) {
        self.items.take_call(place, item, is_done);
    }

    /// Adds a piece of a call's arguments; without an index, to the last call.
    pub(super) fn take_arguments(&mut self, place: ItemPosition<'_>, piece: &str) {
        if let Some(call) = self.items.call(place) {
            call.push(piece);
        }
    }

    /// Sets the complete arguments of a call.
    pub(super) fn settle_arguments(
        &mut self,
        place: ItemPosition<'_>,
        arguments: Option<Box<RawValue>>,
    ) {
        if let Some(call) = self.items.call(place) {
            call.settle(arguments);
        }
    }

    /// Adds a complete item. Its pieces have usually been received; the complete item replaces them.
    pub(super) fn take_done(
        &mut self,
        place: ItemPosition<'_>,
        item: ResponsesItem,
        reply: &Reply<'_>,
    ) {
        let untold = self.items.take_done(place, item);
        self.tell_more(untold, reply);
    }

    /// Adds the whole answer, which replaces everything received before. Parts that it does not
    /// repeat are kept: some endpoints end with an answer that is empty or partial.
    fn settle(&mut self, output: Vec<ResponsesItem>, reply: &Reply<'_>) {
        let heard = std::mem::take(&mut self.items);
        self.items = Items::from_list(output).or(heard.clone());
        for untold in self.items.untold(&heard) {
            self.tell_more(untold, reply);
        }
    }

    /// Streams the part of an item that was not streamed before.
    fn tell_more(&mut self, untold: Untold, reply: &Reply<'_>) {
        if !untold.text.is_empty() {
            self.tell_text(untold.at, &untold.text, reply);
        }
        for (part, text) in untold.thoughts {
            self.tell_thought(untold.at, part, &text, reply);
        }
    }

    fn tell_text(&mut self, at: u64, piece: &str, reply: &Reply<'_>) {
        if self.text_at.is_some_and(|last| last != at) {
            reply.tell_text(BREAK);
        }
        self.text_at = Some(at);
        reply.tell_text(piece);
    }

    fn tell_thought(&mut self, at: u64, part: Thought, piece: &str, reply: &Reply<'_>) {
        if self.thought_at.is_some_and(|last| last != (at, part)) {
            reply.tell_thinking(BREAK);
        }
        self.thought_at = Some((at, part));
        reply.tell_thinking(piece);
    }

    /// Finishes the answer with the whole response, or with the fields of its last event.
    pub(super) fn end(
        mut self,
        mut response: WireResponse,
        reply: &Reply<'_>,
    ) -> Result<ModelResponse, ProviderError> {
        let mut draft = Draft::default();
        if let Some(usage) = response.usage.take() {
            draft.bill(Counts::from(usage).billed_tokens(), reply);
        }
        let ending = response.ending(reply)?;
        self.settle(response.output.unwrap_or_default(), reply);
        let (mut any_refused, mut any_cut) = (false, false);
        let mut phases = Phases::default();
        let mut served = ServedSteps::default();
        let mut items = self.items.into_sorted().into_iter().peekable();
        while let Some(item) = items.next() {
            any_cut |= item.is_cut;
            match item.body {
                ItemBody::Text { text, is_refused, phase } => {
                    served.pass();
                    any_refused |= is_refused;
                    phases.add(phase, &text, &mut draft);
                    add(&mut draft.text, &text);
                }
                ItemBody::Thought { parts, data, id } => {
                    parts.iter().for_each(|(_, text)| add(&mut draft.thinking, text));
                    let next = items.peek().and_then(|item| match &item.body {
                        ItemBody::Served(next) => Some(next),
                        ItemBody::Text { .. } | ItemBody::Thought { .. } | ItemBody::Call(_) => {
                            None
                        }
                    });
                    served.keep_thought(data, id, next, &mut draft);
                }
                ItemBody::Served(item) => served.keep(&item, &mut draft)?,
                ItemBody::Call(mut call) => {
                    served.pass();
                    let namespace = call.kept.take().and_then(|it| keep_field("namespace", &it));
                    if let Some(namespace) = namespace {
                        draft.keep_text(namespace);
                    }
                    draft.calls.push(call);
                }
            }
        }
        let stop_reason = match ending {
            StopReason::End if any_refused => StopReason::Refusal,
            // An answer may be reported as complete, and one of its parts as incomplete.
            StopReason::End if any_cut => StopReason::MaxTokens,
            StopReason::End if !draft.calls.is_empty() => StopReason::ToolUse,
            ending => ending,
        };
        draft.refuse_media_alone(&stop_reason)?;
        let mut response = draft.finish(stop_reason, reply);
        response.answer = phases.answer();
        Ok(response)
    }
}
