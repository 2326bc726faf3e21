use std::collections::BTreeMap;

use layer0::JsonText;
use layer0::message::StatePart;

use crate::accepts::CallIds;

/// Makes a part of provider state with one field, which belongs to the piece after it.
#[must_use]
pub fn keep_field(name: &str, value: &JsonText) -> Option<JsonText> {
    JsonText::from_value(&BTreeMap::from([(name, value)])).ok()
}

/// Returns the value of a part that has only this field.
///
/// ```
/// use backstop_provider_http::{keep_field, kept_field};
/// use layer0::JsonText;
///
/// let part = keep_field("phase", &JsonText::string("commentary")).unwrap();
/// assert_eq!(kept_field(&part, "phase").unwrap().display_text(), "commentary");
/// assert_eq!(kept_field(&part, "caller"), None);
/// ```
#[must_use]
pub fn kept_field(part: &JsonText, name: &str) -> Option<JsonText> {
    let mut fields: BTreeMap<String, JsonText> = part.read().ok()?;
    let value = fields.remove(name)?;
    fields.is_empty().then_some(value)
}

/// Makes the part that keeps the id of a call, if some endpoints do not accept the id.
#[must_use]
pub fn kept_id(id: &str) -> Option<StatePart> {
    let is_plain = CallIds::up_to(40).accepts(id);
    let part = || keep_field("id", &JsonText::string(id)).map(StatePart::new);
    if is_plain { None } else { part() }
}

/// Returns whether an answer's parts keep this id.
pub(crate) fn keeps_id(parts: &[StatePart], id: &str) -> bool {
    !parts.is_empty()
        && kept_id(id).is_some_and(|kept| parts.iter().any(|part| part.data == kept.data))
}

/// A piece of an earlier answer, in the form sent back.
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerPiece<'a> {
    /// Some of its text.
    Text(&'a str),
    /// One of its tool calls, by its index.
    Call(usize),
    /// Provider state, as it was received.
    Kept(JsonText),
}

impl AnswerPiece<'_> {
    /// Returns whether it is a text of white space alone, which several endpoints refuse.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        matches!(self, Self::Text(text) if text.trim().is_empty())
    }
}

/// Splits an answer into pieces, with provider state at its original position: signed thinking is
/// refused elsewhere. Without such parts, the text comes before the calls.
///
/// ```
/// use layer0::message::StatePart;
/// use backstop_provider_http::{AnswerPiece, pieces};
/// use serde_json::json;
///
/// let mut thought = StatePart::new(json!("signed"));
/// thought.text_before = 2;
/// let kept = [thought.clone()];
/// assert_eq!(
///     pieces("ab, c", 1, &kept),
///     [AnswerPiece::Text("ab"), AnswerPiece::Kept(thought.data.clone()), AnswerPiece::Text(", c"), AnswerPiece::Call(0)]
/// );
/// ```
#[must_use]
pub fn pieces<'a>(text: &'a str, calls: usize, kept: &[StatePart]) -> Vec<AnswerPiece<'a>> {
    let mut pieces = Vec::with_capacity(calls + 2 * kept.len() + 1);
    let (mut said, mut called) = (0, 0);
    for part in kept {
        // A text that was changed since may be shorter, or not have this offset.
        let before = text.get(said..part.text_before).filter(|before| !before.is_empty());
        if let Some(before) = before {
            pieces.push(AnswerPiece::Text(before));
            said += before.len();
        }
        pieces.extend((called..part.calls_before.min(calls)).map(AnswerPiece::Call));
        called = called.max(part.calls_before.min(calls));
        pieces.push(AnswerPiece::Kept(part.data.clone()));
    }
    if said < text.len() {
        pieces.push(AnswerPiece::Text(&text[said..]));
    }
    pieces.extend((called..calls).map(AnswerPiece::Call));
    pieces
}
