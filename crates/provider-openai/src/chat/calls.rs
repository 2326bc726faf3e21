//! The tool calls of an answer, whole or in pieces.

use backstop_provider_http::{CallDraft, MAX_ANSWER_ITEMS, lenient};
use layer0::JsonText;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A call, or a piece of one.
#[derive(Deserialize)]
pub(super) struct CallPiece {
    #[serde(default, deserialize_with = "lenient::count")]
    pub(super) index: Option<u64>,
    #[serde(default, deserialize_with = "lenient::text")]
    pub(super) id: Option<String>,
    pub(super) function: Option<FunctionPiece>,
    #[serde(default, deserialize_with = "lenient::json")]
    pub(super) extra_content: Option<JsonText>,
}

impl CallPiece {
    /// Returns the only call of an answer, or a piece of it.
    pub(super) const fn only(function: FunctionPiece) -> Self {
        Self { index: Some(0), id: None, function: Some(function), extra_content: None }
    }
}

#[derive(Deserialize, Default)]
pub(super) struct FunctionPiece {
    pub(super) name: Option<String>,
    /// JSON in a string; a few endpoints send the JSON itself.
    pub(super) arguments: Option<Box<RawValue>>,
}

/// The calls of a stream so far.
#[derive(Default)]
pub(super) struct Calls {
    calls: Vec<OpenCall>,
    /// The number of lists of pieces received.
    lists: u64,
    /// The number of bytes of arguments that were compared.
    #[cfg(test)]
    compared: usize,
}

/// A call to which pieces may be added.
struct OpenCall {
    /// The protocol's index.
    index: u64,
    draft: CallDraft,
    /// The list with its last piece.
    list: u64,
    /// Whether it may repeat the head of the call before: without an id, with the same name and
    /// without arguments.
    may_repeat: bool,
    /// Whether other arguments followed complete ones. They are not compared again.
    is_contradictory: bool,
}

/// Returns a call that was received in one piece.
pub(super) fn whole_call(piece: CallPiece) -> CallDraft {
    let mut draft = CallDraft::default();
    add_to(&mut draft, piece);
    draft
}

/// Adds a piece to a call. Id and name are complete in any piece; some endpoints repeat them.
fn add_to(draft: &mut CallDraft, piece: CallPiece) {
    if draft.id.is_empty() {
        draft.id = piece.id.unwrap_or_default();
    }
    let function = piece.function.unwrap_or_default();
    if draft.name.is_empty() {
        draft.name = function.name.unwrap_or_default();
    }
    draft.take(function.arguments);
    draft.kept = piece.extra_content.or(draft.kept.take());
}

impl Calls {
    /// Adds the pieces that were received together, each of another call unless the endpoint
    /// indicates otherwise. Returns `false` for too many calls, as each piece is matched with them.
    pub(super) fn take(&mut self, pieces: Vec<CallPiece>) -> bool {
        self.lists += 1;
        for piece in pieces {
            self.take_piece(piece);
            if self.calls.len() > MAX_ANSWER_ITEMS {
                return false;
            }
        }
        true
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.calls.iter().map(|call| call.draft.held_bytes()).sum()
    }

    /// Returns the calls in order.
    pub(super) fn into_drafts(self) -> Vec<CallDraft> {
        let is_call = |call: &OpenCall| !(call.may_repeat && call.draft.has_no_arguments());
        self.calls.into_iter().filter(is_call).map(|call| call.draft).collect()
    }

    fn take_piece(&mut self, piece: CallPiece) {
        let function = piece.function.as_ref();
        let name = function.and_then(|function| function.name.as_deref());
        let head = CallHead {
            index: piece.index,
            id: piece.id.as_deref().filter(|id| !id.is_empty()),
            name: name.filter(|name| !name.is_empty()),
        };
        let list = self.lists;
        let known = self.find(&head);
        if let Some(at) = known
            && head.id.is_some()
            && head.name.is_some()
            && self.calls[at].draft.is_whole()
        {
            // The call is repeated as a whole, or is contradictory and malformed.
            let mut again = CallDraft::default();
            again.take(function.and_then(|function| function.arguments.clone()));
            let known = &mut self.calls[at];
            #[cfg(test)]
            if !again.has_no_arguments() && !known.is_contradictory {
                self.compared += known.draft.held_bytes();
            }
            if again.has_no_arguments()
                || (!known.is_contradictory && again.has_same_arguments(&known.draft))
            {
                return;
            }
            known.is_contradictory = true;
        }
        let at = known.unwrap_or_else(|| self.begin(&head));
        let call = &mut self.calls[at];
        call.list = list;
        add_to(&mut call.draft, piece);
    }

    /// Begins a call after those with its index, and returns its position.
    fn begin(&mut self, head: &CallHead<'_>) -> usize {
        let index = head.index.unwrap_or(self.calls.len() as u64);
        let position = self.calls.partition_point(|known| known.index <= index);
        let before = position.checked_sub(1).map(|at| &self.calls[at]);
        let may_repeat = before.is_some_and(|before| {
            let is_same = before.index == index || head.index.is_none();
            let is_apart = before.list != self.lists;
            is_same && is_apart && head.id.is_none() && head.name == Some(&*before.draft.name)
        });
        let (draft, list) = (CallDraft::default(), self.lists);
        self.calls
            .insert(position, OpenCall { index, draft, list, may_repeat, is_contradictory: false });
        position
    }

    /// Returns the call that a piece belongs to; `None` if it begins one. The newest match wins: an
    /// endpoint may omit indices and ids, or use the same for all calls.
    fn find(&self, head: &CallHead<'_>) -> Option<usize> {
        let has_index = |call: &OpenCall| head.index.is_none_or(|index| call.index == index);
        if let Some(id) = head.id {
            let named = self.calls.iter().rposition(|call| has_index(call) && call.draft.id == id);
            if let Some(at) = named {
                return Some(at).filter(|at| !head.has_other_name(&self.calls[*at].draft));
            }
        }
        let at = match head.index {
            Some(_) => self.calls.iter().rposition(has_index)?,
            None => self.calls.len().checked_sub(1)?,
        };
        Some(at).filter(|at| !self.begins_anew(head, &self.calls[*at]))
    }

    /// Returns whether a piece cannot belong to this call, its last candidate.
    fn begins_anew(&self, head: &CallHead<'_>, call: &OpenCall) -> bool {
        let has_other_id = head.id.is_some() && !call.draft.id.is_empty();
        let is_beside = call.list == self.lists && (head.name.is_some() || head.index.is_none());
        let is_head = head.name.is_some() && !call.draft.name.is_empty();
        is_beside
            || head.has_other_name(&call.draft)
            || (has_other_id && (head.name.is_some() || call.draft.is_whole()))
            || (is_head && call.draft.is_whole())
    }
}

/// The fields of a piece that identify its call.
struct CallHead<'a> {
    index: Option<u64>,
    id: Option<&'a str>,
    name: Option<&'a str>,
}

impl CallHead<'_> {
    fn has_other_name(&self, call: &CallDraft) -> bool {
        !call.name.is_empty() && self.name.is_some_and(|name| name != call.name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Spec: P7
    #[test]
    fn arguments_are_compared_once_per_repetition() {
        let whole = json!({ "a": "x".repeat(64 * 1024) }).to_string();
        for arguments in [json!("x"), json!({ "b": 1 }), json!("{}"), json!(""), json!(whole)] {
            let piece = |arguments: &Value| {
                let function = json!({ "name": "pay", "arguments": arguments });
                json!([{ "index": 0, "id": "a", "function": function }]).to_string()
            };
            let mut calls = Calls::default();
            let mut told = 0;
            for arguments in [json!(whole)].iter().chain([&arguments; 100]) {
                let list = piece(arguments);
                told += list.len();
                assert!(calls.take(serde_json::from_str(&list).unwrap()));
            }
            assert!(calls.compared <= 2 * told, "{arguments:.20}: {} of {told}", calls.compared);
        }
    }
}
