//! The items of an answer, as far as they are known.

mod merge;

use std::collections::{BTreeMap, BTreeSet};

use backstop_provider_http::CallDraft;
use layer0::JsonText;
use serde_json::{Value, json};

use super::response::{CallItem, OutputPart, ResponsesItem};
use super::served::ServedItem;

/// The place of something in the answer, as far as the endpoint reports it.
#[derive(Default, Clone, Copy)]
pub(super) struct ItemPosition<'a> {
    pub(super) index: Option<u64>,
    pub(super) item_id: Option<&'a str>,
}

/// A part of an item's thinking, or of its summary.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct Thought {
    pub(super) is_summary: bool,
    pub(super) part: u64,
}

/// The items of an answer, in the order received.
#[derive(Debug, Default, Clone)]
pub(super) struct Items {
    items: Vec<ItemDraft>,
    /// The position of each item by kind and place.
    by_place: BTreeMap<(ItemKind, u64), usize>,
    /// The position of each item by kind and the endpoint's id.
    by_id: BTreeMap<(ItemKind, String), usize>,
    /// The position of each call by its call id.
    by_call_id: BTreeMap<String, usize>,
    /// An upper bound of the bytes to send back.
    kept_bytes: usize,
    /// Whether they are the list of a whole answer, in which each item has its own place and none repeats another.
    is_list: bool,
    /// The positions of incomplete items.
    open: BTreeMap<(ItemKind, u64), usize>,
    /// The number of bytes of calls that were compared.
    #[cfg(test)]
    compared: std::cell::Cell<usize>,
}

/// Text and thinking of an item that were not streamed before.
#[derive(Default)]
pub(super) struct Untold {
    pub(super) at: u64,
    pub(super) text: String,
    pub(super) thoughts: Vec<(Thought, String)>,
}

#[derive(Debug, Clone)]
pub(super) struct ItemDraft {
    /// Its place in the answer.
    at: u64,
    /// The endpoint's id for the item; empty without one.
    id: String,
    is_done: bool,
    /// Whether the endpoint reports it as cut off.
    pub(super) is_cut: bool,
    pub(super) body: ItemBody,
}

#[derive(Debug, Clone)]
pub(super) enum ItemBody {
    Thought {
        parts: Vec<(Thought, String)>,
        /// The item to send back.
        data: Option<Value>,
        /// The endpoint's id for the item.
        id: Option<String>,
    },
    /// An item of a tool that runs at the provider.
    Served(ServedItem),
    Text {
        text: String,
        is_refused: bool,
        /// Commentary or final answer, if the endpoint distinguishes them.
        phase: Option<String>,
    },
    Call(CallDraft),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ItemKind {
    Thought,
    Served,
    Text,
    Call,
}

impl ItemKind {
    const ALL: [Self; 4] = [Self::Thought, Self::Served, Self::Text, Self::Call];
}

impl ItemBody {
    /// Makes the empty body of a kind that is received in pieces.
    fn empty(kind: ItemKind) -> Self {
        match kind {
            ItemKind::Thought | ItemKind::Served => {
                Self::Thought { parts: Vec::new(), data: None, id: None }
            }
            ItemKind::Text => Self::Text { text: String::new(), is_refused: false, phase: None },
            ItemKind::Call => Self::Call(CallDraft::default()),
        }
    }

    const fn kind(&self) -> ItemKind {
        match self {
            Self::Thought { .. } => ItemKind::Thought,
            Self::Served(_) => ItemKind::Served,
            Self::Text { .. } => ItemKind::Text,
            Self::Call(_) => ItemKind::Call,
        }
    }
}

impl ItemDraft {
    /// Returns whether the endpoint's id for the item is the id of a place.
    fn is_named(&self, place: ItemPosition<'_>) -> bool {
        !self.id.is_empty() && place.item_id == Some(self.id.as_str())
    }

    fn held_bytes(&self) -> usize {
        let body = match &self.body {
            ItemBody::Thought { parts, .. } => {
                parts.iter().map(|part| size_of_val(part) + part.1.len()).sum()
            }
            ItemBody::Served(item) => item.held_bytes(),
            ItemBody::Text { text, .. } => text.len(),
            ItemBody::Call(call) => call.held_bytes(),
        };
        size_of::<Self>() + body
    }

    fn text(&self) -> Option<&str> {
        match &self.body {
            ItemBody::Text { text, .. } if !text.is_empty() => Some(text),
            ItemBody::Text { .. }
            | ItemBody::Thought { .. }
            | ItemBody::Served(_)
            | ItemBody::Call(_) => None,
        }
    }
}

impl Items {
    /// Makes the items of a whole answer.
    pub(super) fn from_list(items: Vec<ResponsesItem>) -> Self {
        let mut list = Self { is_list: true, ..Self::default() };
        for (at, item) in (0..).zip(items) {
            list.take_done(ItemPosition { index: Some(at), item_id: None }, item);
        }
        list
    }

    pub(super) const fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.kept_bytes + self.items.iter().map(ItemDraft::held_bytes).sum::<usize>()
    }

    /// Returns the item of a place, or a new one. If the endpoint omits the place, it is the last
    /// incomplete one of its kind.
    fn find(&mut self, place: ItemPosition<'_>, kind: ItemKind) -> usize {
        let id = place.item_id.filter(|id| !id.is_empty());
        let known = match (place.index, id) {
            (Some(index), _) => self.by_place.get(&(kind, index)),
            (None, Some(id)) => self.by_id.get(&(kind, id.to_owned())),
            (None, None) => last(&self.open, kind),
        };
        match known {
            Some(known) => *known,
            None => self.begin(place, kind),
        }
    }

    /// Begins an item, and returns its position. One whose index is taken follows all others: some
    /// endpoints give all items one index. Later pieces with that index belong to the new item.
    fn begin(&mut self, place: ItemPosition<'_>, kind: ItemKind) -> usize {
        let is_free = |index: &u64| !self.by_place.contains_key(&(kind, *index));
        let at = place.index.filter(is_free).unwrap_or_else(|| self.next_place());
        let position = self.items.len();
        let id = place.item_id.unwrap_or_default().to_owned();
        self.by_place.insert((kind, at), position);
        self.by_place.insert((kind, place.index.unwrap_or(at)), position);
        self.open.insert((kind, at), position);
        if !id.is_empty() {
            self.by_id.insert((kind, id.clone()), position);
        }
        let body = ItemBody::empty(kind);
        self.items.push(ItemDraft { at, id, is_done: false, is_cut: false, body });
        position
    }

    /// Returns the text that a piece for a place belongs to, and its place.
    pub(super) fn text(&mut self, place: ItemPosition<'_>, piece: &str) -> (u64, &mut ItemDraft) {
        if self.begins_text(place, piece) {
            self.begin(place, ItemKind::Text);
        }
        self.at(place, ItemKind::Text)
    }

    /// Returns the item of a place, like [`Items::find`], and its place.
    pub(super) fn at(&mut self, place: ItemPosition<'_>, kind: ItemKind) -> (u64, &mut ItemDraft) {
        let position = self.find(place, kind);
        let item = &mut self.items[position];
        (item.at, item)
    }

    /// Returns the place after all others.
    fn next_place(&self) -> u64 {
        let last =
            ItemKind::ALL.into_iter().filter_map(|kind| Some(last_place(&self.by_place, kind)?.0));
        last.max().map_or(0, |last| last.saturating_add(1))
    }

    /// Marks the item of a place as complete, and returns it.
    fn finish_item(&mut self, place: ItemPosition<'_>, kind: ItemKind) -> (u64, &mut ItemDraft) {
        let position = self.find(place, kind);
        self.finish(position);
        (self.items[position].at, &mut self.items[position])
    }

    fn finish(&mut self, position: usize) {
        let item = &mut self.items[position];
        item.is_done = true;
        self.open.remove(&(item.body.kind(), item.at));
    }

    /// Returns the call of a place.
    pub(super) fn call(&mut self, place: ItemPosition<'_>) -> Option<&mut CallDraft> {
        // A piece without a place belongs to the last call, even if it is complete.
        let index = place.index.or_else(|| {
            let last = last(&self.by_place, ItemKind::Call)?;
            place.item_id.is_none_or(str::is_empty).then_some(self.items[*last].at)
        });
        let (_, item) = self.at(ItemPosition { index, ..place }, ItemKind::Call);
        match &mut item.body {
            ItemBody::Call(call) => Some(call),
            ItemBody::Thought { .. } | ItemBody::Served(_) | ItemBody::Text { .. } => None,
        }
    }

    /// Adds a call, or further fields of a known one. If an endpoint omits the place, a new id
    /// begins a new call.
    pub(super) fn take_call(
        &mut self,
        place: ItemPosition<'_>,
        item: CallItem,
        is_done: bool,
    ) -> u64 {
        let begins_call = self.begins_call(place, &item, is_done);
        let known = self.known_call(place, &item, is_done);
        let call_id = item.call_id.unwrap_or_default();
        let position = match known {
            Some(known) => known,
            None if begins_call => self.begin(place, ItemKind::Call),
            None => {
                let index = place.index.unwrap_or_else(|| self.next_place());
                self.find(ItemPosition { index: Some(index), ..place }, ItemKind::Call)
            }
        };
        let was_done = self.items[position].is_done;
        if is_done {
            self.finish(position);
        }
        if !call_id.is_empty() {
            self.by_call_id.insert(call_id.clone(), position);
        }
        let draft = &mut self.items[position];
        draft.is_cut = is_incomplete(item.status.as_deref());
        if let Some(id) = place.item_id.filter(|id| draft.id.is_empty() && !id.is_empty()) {
            id.clone_into(&mut draft.id);
            self.by_id.insert((ItemKind::Call, id.to_owned()), position);
        }
        if let ItemBody::Call(call) = &mut draft.body {
            settle(&mut call.id, call_id);
            settle(&mut call.name, item.name.unwrap_or_default());
            call.kept = item.namespace.as_deref().map(JsonText::string).or(call.kept.take());
            let is_settled = call.settle(item.arguments);
            if is_done && (is_settled || !was_done) {
                call.compact();
            }
        }
        draft.at
    }

    /// Returns the position of the call with this call id. An endpoint may give one id to several calls: a call at
    /// another place is another, unless it is the same item or repeats the whole call.
    fn known_call(&self, place: ItemPosition<'_>, item: &CallItem, is_done: bool) -> Option<usize> {
        if self.is_list {
            return None;
        }
        let call_id = item.call_id.as_deref().unwrap_or_default();
        let position = *self.by_call_id.get(call_id)?;
        let known = &self.items[position];
        let ItemBody::Call(call) = &known.body else { return Some(position) };
        let is_elsewhere =
            !known.is_named(place) && place.index.is_some_and(|index| index != known.at);
        let repeats = || {
            let mut again = CallDraft::new(call_id, item.name.as_deref().unwrap_or_default());
            again.settle(item.arguments.clone());
            is_done && call.name == again.name && self.are_alike(call, &again)
        };
        (!is_elsewhere || repeats()).then_some(position)
    }

    /// Returns whether a call differs from the call with its place. Without ids, a whole call that
    /// is not equal to a complete one is another.
    fn begins_call(&self, place: ItemPosition<'_>, item: &CallItem, is_done: bool) -> bool {
        let known = place.index.and_then(|index| self.by_place.get(&(ItemKind::Call, index)));
        let Some(known) = known.map(|known| &self.items[*known]) else { return false };
        let ItemBody::Call(call) = &known.body else { return false };
        let call_id = item.call_id.as_deref().unwrap_or_default();
        if !known.is_done || known.is_named(place) {
            return false;
        }
        if call_id.is_empty() || call.id.is_empty() {
            let mut again = CallDraft::new(call_id, item.name.as_deref().unwrap_or_default());
            again.settle(item.arguments.clone());
            is_done && !(call.name == again.name && self.are_alike(call, &again))
        } else {
            call.id != call_id
        }
    }

    /// Returns whether two calls have the same arguments.
    fn are_alike(&self, one: &CallDraft, other: &CallDraft) -> bool {
        #[cfg(test)]
        self.compared.set(self.compared.get() + one.held_bytes() + other.held_bytes());
        one.has_same_arguments(other)
    }

    /// Returns whether a piece for this place begins a text after a complete one.
    fn begins_text(&self, place: ItemPosition<'_>, said: &str) -> bool {
        let known = place.index.and_then(|index| self.by_place.get(&(ItemKind::Text, index)));
        let Some(known) = known.map(|known| &self.items[*known]) else { return false };
        let is_other = known.text().is_some_and(|text| text != said);
        is_other && known.is_done && !known.is_named(place)
    }

    /// Adds a whole item, and returns the part that was not streamed before.
    pub(super) fn take_done(&mut self, place: ItemPosition<'_>, item: ResponsesItem) -> Untold {
        let mut untold = Untold::default();
        match item {
            ResponsesItem::FunctionCall(item) => {
                self.take_call(place, item, true);
            }
            ResponsesItem::Message { content, status, phase: told } => {
                let (said, refused) = read(content.unwrap_or_default());
                if !said.is_empty() && self.begins_text(place, &said) {
                    self.begin(place, ItemKind::Text);
                }
                let (at, draft) = self.finish_item(place, ItemKind::Text);
                draft.is_cut = is_incomplete(status.as_deref());
                untold.at = at;
                if let ItemBody::Text { text, is_refused, phase } = &mut draft.body {
                    *phase = told.or(phase.take());
                    untold.text = said.strip_prefix(text.as_str()).unwrap_or_default().to_owned();
                    settle(text, said);
                    *is_refused |= refused;
                }
            }
            ResponsesItem::Reasoning { id: name, summary, content, encrypted_content } => {
                self.kept_bytes += encrypted_content.as_ref().map_or(0, String::len);
                let wanted = encrypted_content
                    .map(|content| build_reasoning_item(summary.as_deref(), &content));
                let (at, draft) = self.finish_item(place, ItemKind::Thought);
                untold.at = at;
                if let ItemBody::Thought { parts, data, id } = &mut draft.body {
                    *data = wanted.or(data.take());
                    *id = name.or(id.take());
                    let whole = thoughts(summary, content);
                    if !whole.is_empty() && parts.is_empty() {
                        untold.thoughts.clone_from(&whole);
                        *parts = whole;
                    }
                }
            }
            ResponsesItem::Served(item) => self.take_served(place, item),
            ResponsesItem::Other => {}
        }
        untold
    }

    /// Adds an item of a tool that runs at the provider, in place of one with the same id.
    fn take_served(&mut self, place: ItemPosition<'_>, item: ServedItem) {
        let key = (ItemKind::Served, item.id.clone());
        match self.by_id.get(&key) {
            Some(known) => self.items[*known].body = ItemBody::Served(item),
            None => {
                let place = ItemPosition { item_id: Some(&key.1), ..place };
                let position = self.begin(place, ItemKind::Served);
                self.items[position].body = ItemBody::Served(item);
                self.finish(position);
            }
        }
    }

    /// Returns the parts of these items that were not streamed before, in order. Text that was
    /// streamed differently cannot be taken back.
    pub(super) fn untold(&self, told: &Self) -> Vec<Untold> {
        let mut all = Vec::new();
        // The last event may omit earlier items, which changes the place of this one.
        let texts: BTreeSet<&str> = told.items.iter().filter_map(ItemDraft::text).collect();
        for item in &self.items {
            let known = told.by_place.get(&(item.body.kind(), item.at));
            let known = known.map(|known| &told.items[*known].body);
            let mut untold = Untold { at: item.at, ..Untold::default() };
            match (&item.body, known) {
                (ItemBody::Text { text, .. }, _) if texts.contains(text.as_str()) => {}
                (ItemBody::Text { text, .. }, Some(ItemBody::Text { text: known, .. })) => {
                    untold.text = text.strip_prefix(known.as_str()).unwrap_or_default().to_owned();
                }
                (ItemBody::Text { text, .. }, _) => untold.text.clone_from(text),
                (ItemBody::Thought { parts, .. }, known) => match known {
                    Some(ItemBody::Thought { parts: known, .. }) if !known.is_empty() => {}
                    _ => untold.thoughts.clone_from(parts),
                },
                (ItemBody::Served(_) | ItemBody::Call(_), _) => {}
            }
            all.push(untold);
        }
        all
    }

    /// Returns whether an item of a tool that runs at the provider has this id.
    fn has_served(&self, item: &ItemDraft) -> bool {
        self.by_id.contains_key(&(ItemKind::Served, item.id.clone()))
    }

    /// Returns whether an item of this kind has content.
    fn has(&self, kind: ItemKind) -> bool {
        self.items.iter().any(|item| match &item.body {
            ItemBody::Thought { parts, .. } => kind == ItemKind::Thought && !parts.is_empty(),
            ItemBody::Served(_) => kind == ItemKind::Served,
            ItemBody::Text { text, .. } => kind == ItemKind::Text && !text.is_empty(),
            ItemBody::Call(_) => kind == ItemKind::Call,
        })
    }

    /// Returns the items in order; thinking comes before the items it led to.
    pub(super) fn into_sorted(mut self) -> Vec<ItemDraft> {
        self.items.sort_by_key(|item| (item.at, item.body.kind()));
        self.items
    }
}

/// Returns the last item of a kind.
fn last(places: &BTreeMap<(ItemKind, u64), usize>, kind: ItemKind) -> Option<&usize> {
    Some(last_place(places, kind)?.1)
}

/// Returns the last place of a kind, and its item.
fn last_place(places: &BTreeMap<(ItemKind, u64), usize>, kind: ItemKind) -> Option<(u64, &usize)> {
    let ((_, at), item) = places.range((kind, 0)..=(kind, u64::MAX)).next_back()?;
    Some((*at, item))
}

/// Returns the text of a message's parts, and whether it is a refusal.
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

/// Returns a reasoning item to send back, without its id: an item that was not stored cannot be looked up.
fn build_reasoning_item(summary: Option<&[OutputPart]>, content: &str) -> Value {
    let texts = summary.into_iter().flatten().filter_map(|part| part.text.as_deref());
    let summary: Vec<Value> =
        texts.map(|text| json!({ "type": "summary_text", "text": text })).collect();
    json!({ "type": "reasoning", "summary": summary, "encrypted_content": content })
}

fn is_incomplete(status: Option<&str>) -> bool {
    status == Some("incomplete")
}

/// Replaces a field, unless the new value is empty.
fn settle(field: &mut String, value: String) {
    if !value.is_empty() {
        *field = value;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;

    fn call(place: ItemPosition<'_>, items: &mut Items, arguments: &str) {
        let item = CallItem {
            call_id: None,
            name: Some("pay".to_owned()),
            arguments: to_raw_value(arguments).ok(),
            namespace: None,
            status: None,
        };
        items.take_call(place, item, true);
    }

    /// Spec: P7
    #[test]
    fn repeated_calls_are_compared_in_linear_time() {
        let long = |c: &str| c.repeat(64 * 1024);
        let whole = json!({ "a": long("x") }).to_string();
        for (first, again) in [
            (whole.clone(), "{}".to_owned()),
            (whole.clone(), String::new()),
            (whole, "{\"b\":1}".to_owned()),
            (format!("{{{}}}", long(" ")), "{}".to_owned()),
        ] {
            for item_id in [None, Some("i")] {
                let mut items = Items::default();
                let place = ItemPosition { index: Some(0), item_id };
                call(place, &mut items, &first);
                for _ in 0..200 {
                    call(place, &mut items, &again);
                }
                let told = first.len() + 200 * (again.len() + size_of::<CallDraft>());
                let compared = items.compared.get();
                assert!(compared <= 4 * told, "{again:?} {item_id:?}: {compared} of {told}");
            }
        }
    }

    /// Spec: P7
    #[test]
    fn calls_without_ids_are_found_by_their_words() {
        let all: Vec<String> = (0..9).map(|n| json!({ "n": n }).to_string()).collect();
        let (mut heard, mut whole) = (Items::default(), Items::default());
        for (at, arguments) in (0..).zip(&all) {
            call(ItemPosition { index: Some(at), item_id: None }, &mut heard, arguments);
        }
        for (at, arguments) in (0..).zip(all.iter().rev()) {
            call(ItemPosition { index: Some(at), item_id: None }, &mut whole, arguments);
        }
        let merged = whole.or(heard).into_sorted();
        let told = merged.into_iter().filter_map(|item| match item.body {
            ItemBody::Call(call) => Some(call.whole_arguments().to_string()),
            ItemBody::Thought { .. } | ItemBody::Served(_) | ItemBody::Text { .. } => None,
        });
        assert_eq!(told.collect::<Vec<_>>(), all);
    }
}
