//! An answer that is being put together, from items or from pieces of them.

use backstop_provider::{ModelResponse, ProviderError};
use backstop_provider_http::{Draft, MAX_ANSWER_ITEMS, Reply, keep_field};
use layer0::message::StopReason;
use serde_json::value::RawValue;

use super::items::{Body, Items, Kind, Place, Thought, Untold};
use super::paragraph::{BREAK, add};
use super::phase::Phases;
use super::response::{CallItem, Item, WireResponse};
use super::served::ServedSteps;
use crate::usage::Counts;

/// An answer that is being put together.
#[derive(Default)]
pub(super) struct ItemsDraft {
    items: Items,
    /// The item whose text the listener heard last.
    text_at: Option<u64>,
    /// The part of the item whose thinking the listener heard last.
    thought_at: Option<(u64, Thought)>,
}

impl ItemsDraft {
    /// Returns how many bytes it holds, about.
    pub(super) fn held_bytes(&self) -> usize {
        self.items.held_bytes()
    }

    /// Returns whether there are more items than can be compared with those of the whole answer.
    pub(super) const fn has_too_many(&self) -> bool {
        self.items.len() > MAX_ANSWER_ITEMS
    }

    /// Takes a piece of text. A message that follows another begins a paragraph.
    pub(super) fn say(
        &mut self,
        place: Place<'_>,
        piece: &str,
        is_refusal: bool,
        reply: &Reply<'_>,
    ) {
        if piece.is_empty() {
            return;
        }
        let (at, item) = self.items.text(place, piece);
        if let Body::Text { text, is_refused, .. } = &mut item.body {
            text.push_str(piece);
            *is_refused |= is_refusal;
        }
        self.tell_text(at, piece, reply);
    }

    /// Takes a piece of thinking. A part that follows another begins a paragraph.
    pub(super) fn think(
        &mut self,
        place: Place<'_>,
        part: Thought,
        piece: &str,
        reply: &Reply<'_>,
    ) {
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
        self.tell_thought(at, part, piece, reply);
    }

    /// Takes a call, or what more is known of one.
    pub(super) fn take_call(&mut self, place: Place<'_>, item: CallItem, is_done: bool) {
        self.items.take_call(place, item, is_done);
    }

    /// Takes a piece of a call's arguments; of the last call's where there is no index.
    pub(super) fn take_arguments(&mut self, place: Place<'_>, piece: &str) {
        if let Some(call) = self.items.call(place) {
            call.push(piece);
        }
    }

    /// Takes a call's arguments as a whole.
    pub(super) fn settle_arguments(&mut self, place: Place<'_>, arguments: Option<Box<RawValue>>) {
        if let Some(call) = self.items.call(place) {
            call.settle(arguments);
        }
    }

    /// Takes an item that is done. As a rule it was heard piece by piece; what it says as a whole
    /// settles it.
    pub(super) fn take_done(&mut self, place: Place<'_>, item: Item, reply: &Reply<'_>) {
        let untold = self.items.take_done(place, item);
        self.tell_more(untold, reply);
    }

    /// Takes the whole answer, which settles all that was heard. What it does not repeat stays as it was
    /// heard: some endpoints end with an answer that is empty, or with a part of it.
    fn settle(&mut self, output: Vec<Item>, reply: &Reply<'_>) {
        let mut whole = Items::default();
        for (at, item) in (0..).zip(output) {
            whole.take_done(Place { index: Some(at), item_id: None }, item);
        }
        let heard = std::mem::take(&mut self.items);
        self.items = whole.or(heard.clone());
        for untold in self.items.untold(&heard) {
            self.tell_more(untold, reply);
        }
    }

    /// Tells the listener what an item says beyond what was heard of it.
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

    /// Ends the answer with the whole of it, or with what its last event says of it.
    pub(super) fn end(
        mut self,
        mut response: WireResponse,
        reply: &Reply<'_>,
    ) -> Result<ModelResponse, ProviderError> {
        let mut draft = Draft::default();
        if let Some(usage) = response.usage.take() {
            draft.bill(Counts::from(usage).billed(), reply);
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
                Body::Text { text, is_refused, phase } => {
                    served.pass();
                    any_refused |= is_refused;
                    phases.add(phase, &text, &mut draft);
                    add(&mut draft.text, &text);
                }
                Body::Thought { parts, data, id } => {
                    parts.iter().for_each(|(_, text)| add(&mut draft.thinking, text));
                    let next = items.peek().and_then(|item| match &item.body {
                        Body::Served(next) => Some(next),
                        Body::Text { .. } | Body::Thought { .. } | Body::Call(_) => None,
                    });
                    served.keep_thought(data, id, next, &mut draft);
                }
                Body::Served(item) => served.keep(&item, &mut draft)?,
                Body::Call(mut call) => {
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
            // An answer may say that it is complete, and of a part of it that it is not.
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
