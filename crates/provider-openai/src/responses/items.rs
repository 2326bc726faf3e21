//! The items of an answer, as far as they are known.

use backstop_provider_http::CallDraft;
use serde_json::{Value, json};

use super::response::{CallItem, Item, OutputPart};

/// Where in the answer something stands, as far as the endpoint tells.
#[derive(Default, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) index: Option<u64>,
    pub(super) item_id: Option<&'a str>,
}

/// A part of what an item thinks, or of its summary.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct Thought {
    pub(super) is_summary: bool,
    pub(super) part: u64,
}

/// The items of an answer, in their order.
#[derive(Debug, Default, Clone)]
pub(super) struct Items(Vec<ItemDraft>);

#[derive(Debug, Clone)]
pub(super) struct ItemDraft {
    /// Where it stands in the answer.
    at: u64,
    /// The endpoint's name for it; empty where it has none.
    id: String,
    is_done: bool,
    /// Does the endpoint say that it is incomplete?
    pub(super) is_cut: bool,
    pub(super) body: Body,
}

#[derive(Debug, Clone)]
pub(super) enum Body {
    Thought {
        parts: Vec<(Thought, String)>,
        /// What the endpoint wants back.
        data: Option<Value>,
    },
    Text {
        text: String,
        is_refused: bool,
    },
    Call(CallDraft),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Thought,
    Text,
    Call,
}

impl Body {
    fn of(kind: Kind) -> Self {
        match kind {
            Kind::Thought => Self::Thought { parts: Vec::new(), data: None },
            Kind::Text => Self::Text { text: String::new(), is_refused: false },
            Kind::Call => Self::Call(CallDraft::default()),
        }
    }

    const fn kind(&self) -> Kind {
        match self {
            Self::Thought { .. } => Kind::Thought,
            Self::Text { .. } => Kind::Text,
            Self::Call(_) => Kind::Call,
        }
    }
}

impl Items {
    /// Returns the item that stands there and its place; a new one where there is none. Where the
    /// endpoint leaves the place out, it is the last of its kind that is not done.
    pub(super) fn at(&mut self, place: Place<'_>, kind: Kind) -> (u64, &mut ItemDraft) {
        let of_kind = |item: &ItemDraft| item.body.kind() == kind;
        let id = place.item_id.filter(|id| !id.is_empty());
        let known = match (place.index, id) {
            (Some(index), _) => self.0.iter().position(|it| of_kind(it) && it.at == index),
            (None, Some(id)) => self.0.iter().position(|it| of_kind(it) && it.id == id),
            (None, None) => self.0.iter().rposition(|it| of_kind(it) && !it.is_done),
        };
        let position = known.unwrap_or_else(|| {
            let next = || self.0.last().map_or(0, |last| last.at.saturating_add(1));
            let at = place.index.unwrap_or_else(next);
            let position = self.0.partition_point(|item| item.at <= at);
            let id = id.unwrap_or_default().to_owned();
            let (is_done, is_cut, body) = (false, false, Body::of(kind));
            self.0.insert(position, ItemDraft { at, id, is_done, is_cut, body });
            position
        });
        let item = &mut self.0[position];
        (item.at, item)
    }

    /// Returns the call that stands there.
    pub(super) fn call(&mut self, place: Place<'_>) -> Option<&mut CallDraft> {
        // A piece that says nothing of its place is of the last call, be it done.
        let index = place.index.or_else(|| {
            let last = self.0.iter().rfind(|item| item.body.kind() == Kind::Call)?;
            place.item_id.is_none_or(str::is_empty).then_some(last.at)
        });
        let (_, item) = self.at(Place { index, ..place }, Kind::Call);
        match &mut item.body {
            Body::Call(call) => Some(call),
            Body::Thought { .. } | Body::Text { .. } => None,
        }
    }

    /// Takes a call, or what more is known of one. Where an endpoint leaves the place out, a new id
    /// begins a new call.
    pub(super) fn take_call(&mut self, place: Place<'_>, item: CallItem, is_done: bool) -> u64 {
        let call_id = item.call_id.unwrap_or_default();
        let known = self.0.iter().find(|known| match &known.body {
            Body::Call(call) => !call_id.is_empty() && call.id == call_id,
            _ => false,
        });
        let next = self.0.last().map_or(0, |last| last.at.saturating_add(1));
        let index = place.index.or(known.map(|known| known.at)).unwrap_or(next);
        let (at, draft) = self.at(Place { index: Some(index), ..place }, Kind::Call);
        draft.is_done |= is_done;
        draft.is_cut = is_incomplete(item.status.as_deref());
        if let Some(id) = place.item_id.filter(|_| draft.id.is_empty()) {
            id.clone_into(&mut draft.id);
        }
        if let Body::Call(call) = &mut draft.body {
            settle(&mut call.id, call_id);
            settle(&mut call.name, item.name.unwrap_or_default());
            call.settle(item.arguments);
        }
        at
    }

    /// Takes a whole item, and returns its place.
    pub(super) fn take_done(&mut self, place: Place<'_>, item: Item) -> u64 {
        match item {
            Item::FunctionCall(item) => self.take_call(place, item, true),
            Item::Message { content, status } => {
                let (at, draft) = self.at(place, Kind::Text);
                draft.is_done = true;
                draft.is_cut = is_incomplete(status.as_deref());
                if let Body::Text { text, is_refused } = &mut draft.body {
                    let (said, refused) = read(content.unwrap_or_default());
                    settle(text, said);
                    *is_refused |= refused;
                }
                at
            }
            Item::Reasoning { summary, content, encrypted_content } => {
                let wanted = encrypted_content.map(|content| kept(summary.as_deref(), &content));
                let (at, draft) = self.at(place, Kind::Thought);
                draft.is_done = true;
                if let Body::Thought { parts, data } = &mut draft.body {
                    *data = wanted.or(data.take());
                    let whole = thoughts(summary, content);
                    if !whole.is_empty() && parts.is_empty() {
                        *parts = whole;
                    }
                }
                at
            }
            Item::Other => place.index.unwrap_or_default(),
        }
    }

    /// Fills in what these items have nothing of: a kind of item, or a part of one.
    pub(super) fn or(mut self, heard: Self) -> Self {
        let (has_text, has_calls, has_thoughts) =
            (self.has(Kind::Text), self.has(Kind::Call), self.has(Kind::Thought));
        for item in heard.0 {
            let known = self.0.iter_mut().find(|known| match (&known.body, &item.body) {
                (Body::Call(known), Body::Call(call)) if !known.id.is_empty() => {
                    known.id == call.id
                }
                (known_body, body) => known.at == item.at && known_body.kind() == body.kind(),
            });
            match (known.map(|known| &mut known.body), &item.body) {
                (Some(Body::Call(known)), Body::Call(call)) => known.fill(call),
                (
                    Some(Body::Thought { parts, data }),
                    Body::Thought { parts: more, data: wanted },
                ) => {
                    if !has_thoughts {
                        parts.clone_from(more);
                    }
                    if data.is_none() {
                        data.clone_from(wanted);
                    }
                }
                (None, Body::Call(_)) if !has_calls => self.insert(item),
                (None, Body::Thought { .. }) if !has_thoughts => self.insert(item),
                (_, Body::Text { .. }) if !has_text => self.insert(item),
                _ => {}
            }
        }
        self
    }

    fn insert(&mut self, item: ItemDraft) {
        let position = self.0.partition_point(|known| known.at <= item.at);
        self.0.insert(position, item);
    }

    /// Does an item of this kind say anything?
    fn has(&self, kind: Kind) -> bool {
        self.0.iter().any(|item| match &item.body {
            Body::Thought { parts, .. } => kind == Kind::Thought && !parts.is_empty(),
            Body::Text { text, .. } => kind == Kind::Text && !text.is_empty(),
            Body::Call(_) => kind == Kind::Call,
        })
    }

    /// Returns where items stand, in order.
    pub(super) fn places(&self) -> Vec<u64> {
        let mut places: Vec<u64> = self.0.iter().map(|item| item.at).collect();
        places.dedup();
        places
    }

    /// Returns what is said at a place.
    pub(super) fn text_of(&self, at: u64) -> String {
        let texts = self.0.iter().filter(|item| item.at == at).map(|item| match &item.body {
            Body::Text { text, .. } => text.as_str(),
            Body::Thought { .. } | Body::Call(_) => "",
        });
        texts.collect()
    }

    /// Returns what is thought at a place.
    pub(super) fn thoughts_of(&self, at: u64) -> Vec<(Thought, String)> {
        let thoughts = self.0.iter().filter(|item| item.at == at).map(|item| match &item.body {
            Body::Thought { parts, .. } => parts.as_slice(),
            Body::Text { .. } | Body::Call(_) => &[],
        });
        thoughts.flatten().cloned().collect()
    }

    /// Returns the items in order; what was thought comes before what it led to.
    pub(super) fn into_sorted(mut self) -> Vec<ItemDraft> {
        self.0.sort_by_key(|item| (item.at, item.body.kind()));
        self.0
    }
}

/// Returns what the parts of a message say, and whether that is a refusal.
fn read(parts: Vec<OutputPart>) -> (String, bool) {
    let mut said = (String::new(), false);
    for part in parts {
        said.0.push_str(&part.text.unwrap_or_default());
        let refusal = part.refusal.unwrap_or_default();
        said.1 |= !refusal.is_empty();
        said.0.push_str(&refusal);
    }
    said
}

fn thoughts(
    summary: Option<Vec<OutputPart>>,
    content: Option<Vec<OutputPart>>,
) -> Vec<(Thought, String)> {
    let parts = [(true, summary), (false, content)].into_iter().flat_map(|(is_summary, parts)| {
        let parts = (0..).zip(parts.unwrap_or_default());
        parts.map(move |(part, it)| (Thought { is_summary, part }, it.text.unwrap_or_default()))
    });
    parts.filter(|(_, text)| !text.is_empty()).collect()
}

/// Returns what a reasoning item wants back, without its id: one that was not stored cannot be looked
/// up.
fn kept(summary: Option<&[OutputPart]>, content: &str) -> Value {
    let texts = summary.into_iter().flatten().filter_map(|part| part.text.as_deref());
    let summary: Vec<Value> =
        texts.map(|text| json!({ "type": "summary_text", "text": text })).collect();
    json!({ "type": "reasoning", "summary": summary, "encrypted_content": content })
}

fn is_incomplete(status: Option<&str>) -> bool {
    status == Some("incomplete")
}

/// Replaces what is known by what is said, if anything is.
fn settle(field: &mut String, value: String) {
    if !value.is_empty() {
        *field = value;
    }
}
