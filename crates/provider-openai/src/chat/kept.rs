//! Fields of an answer to send back to its endpoint.

use layer0::JsonText;
use layer0::message::StatePart;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::content::{Thoughts, held_bytes};
use crate::dialect::KeptReasoning;

/// Placeholder reasoning of a call that another endpoint made, for an endpoint that refuses calls
/// without reasoning.
const UNKNOWN_REASONING: &str = "(The reasoning of this step was not recorded.)";
/// Placeholder signature of a call that another endpoint made, which Gemini does not validate:
/// <https://ai.google.dev/gemini-api/docs/thought-signatures#faqs>.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// The approximate bytes of a thought in addition to its fields.
const BYTES_PER_THOUGHT: usize = 128;

/// A kept part of an answer: fields of the message, or of the call at its position. Thoughts among
/// the parts of the content are kept separately.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptPart {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<KeptMessage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    call: Option<KeptCall>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptMessage {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_content: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reasoning: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_details: Option<JsonText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) extra_content: Option<JsonText>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct KeptCall {
    extra_content: JsonText,
}

/// The kept fields of an answer that is being decoded.
#[derive(Debug, Default)]
pub(super) struct KeptFields {
    message: KeptMessage,
    /// The pieces of `reasoning_details` so far.
    details: Vec<Value>,
    thoughts: Thoughts,
    /// The number of bytes received.
    taken: usize,
}

impl KeptFields {
    pub(super) fn push_reasoning(&mut self, content: Option<&str>, reasoning: Option<&str>) {
        for (text, piece) in [
            (&mut self.message.reasoning_content, content),
            (&mut self.message.reasoning, reasoning),
        ] {
            if let Some(piece) = piece.filter(|piece| !piece.is_empty()) {
                self.taken += piece.len();
                text.get_or_insert_default().push_str(piece);
            }
        }
    }

    pub(super) fn push_extra(&mut self, extra: Option<JsonText>) {
        self.message.extra_content = extra.or(self.message.extra_content.take());
    }

    /// Adds a thought that is a part of the content, after this much text.
    pub(super) fn push_thought(
        &mut self,
        text_before: usize,
        thought: Map<String, Value>,
        is_piece: bool,
    ) {
        self.taken += BYTES_PER_THOUGHT + held_bytes(&thought);
        self.thoughts.push(text_before, thought, is_piece);
    }

    /// Returns an upper bound of the bytes held.
    pub(super) const fn held_bytes(&self) -> usize {
        self.taken
    }

    /// Adds reasoning details. A stream sends each in pieces; those of a whole message are complete.
    pub(super) fn push_details(&mut self, details: Option<JsonText>, are_pieces: bool) {
        self.taken += details.as_ref().map_or(0, |details| details.get().len());
        let Some(Value::Array(details)) = details.map(|details| details.value()) else { return };
        for detail in details {
            match (self.details.last_mut(), detail) {
                (Some(Value::Object(last)), Value::Object(piece))
                    if are_pieces && continues(last, &piece) =>
                {
                    piece.into_iter().for_each(|(key, value)| extend(last, key, value));
                }
                (_, detail) => self.details.push(detail),
            }
        }
    }

    /// Returns the parts of the message to keep. Reasoning without details is only kept with tool calls.
    pub(super) fn into_parts(mut self, has_calls: bool) -> Vec<StatePart> {
        let thoughts = std::mem::take(&mut self.thoughts);
        self.into_part(has_calls).into_iter().chain(thoughts.into_parts()).collect()
    }

    fn into_part(mut self, has_calls: bool) -> Option<StatePart> {
        if !self.details.is_empty() {
            self.message.reasoning_details =
                JsonText::parse(&Value::Array(self.details).to_string()).ok();
        }
        let message = &mut self.message;
        if !has_calls && message.reasoning_details.is_none() {
            (message.reasoning_content, message.reasoning) = (None, None);
        }
        let is_empty = *message == KeptMessage::default();
        let part = KeptPart { message: Some(self.message), call: None };
        (!is_empty).then(|| JsonText::from_value(&part).ok().map(StatePart::new)).flatten()
    }
}

/// Returns the part of a call to keep.
pub(super) fn call_part(extra_content: JsonText, calls_before: usize) -> Option<StatePart> {
    let part = KeptPart { message: None, call: Some(KeptCall { extra_content }) };
    let mut part = StatePart::new(JsonText::from_value(&part).ok()?);
    part.calls_before = calls_before;
    Some(part)
}

/// Returns whether a piece belongs to the same detail as the previous one.
fn continues(last: &Map<String, Value>, piece: &Map<String, Value>) -> bool {
    let same = |key| last.get(key) == piece.get(key) || piece.get(key).is_none_or(Value::is_null);
    let has_text = |detail: &Map<String, Value>| {
        ["text", "summary"].iter().any(|key| detail.get(*key).is_some_and(Value::is_string))
    };
    // A signature ends the signed text.
    let is_signed = last.get("signature").is_some_and(Value::is_string);
    has_text(last)
        && !(is_signed && has_text(piece))
        && last.get("type") == piece.get("type")
        && same("index")
        && same("id")
}

fn extend(detail: &mut Map<String, Value>, key: String, value: Value) {
    match (detail.get_mut(&key), value) {
        (_, Value::Null) => {}
        (Some(Value::String(text)), Value::String(piece))
            if matches!(&*key, "text" | "summary") =>
        {
            text.push_str(&piece);
        }
        (_, value) => drop(detail.insert(key, value)),
    }
}

/// Returns the kept fields of a message that its endpoint is sent. `any_calls` is whether the whole
/// conversation has a tool call.
pub(super) fn message_fields(
    parts: &[StatePart],
    reasoning: KeptReasoning,
    has_calls: bool,
    any_calls: bool,
) -> KeptMessage {
    let kept = parts.iter().find_map(|part| part.data.read::<KeptPart>().ok()?.message);
    let mut kept = kept.unwrap_or_default();
    match reasoning {
        KeptReasoning::Required => {
            if any_calls {
                kept.reasoning_content.get_or_insert_with(|| UNKNOWN_REASONING.to_owned());
            } else {
                kept.reasoning_content = None;
            }
            kept.reasoning = None;
        }
        KeptReasoning::AsItCame | KeptReasoning::Signed if has_calls => kept.reasoning = None,
        KeptReasoning::AsItCame | KeptReasoning::Signed => {
            (kept.reasoning, kept.reasoning_content) = (None, None);
        }
        // The details contain the text too.
        KeptReasoning::Details if kept.reasoning_details.is_some() => {
            (kept.reasoning, kept.reasoning_content) = (None, None);
        }
        KeptReasoning::Details => {}
        KeptReasoning::Nothing | KeptReasoning::Parts => kept = KeptMessage::default(),
    }
    kept
}

/// Returns the kept content of the call at this index. Of parallel calls, Gemini signs only the first.
pub(super) fn call_content(
    parts: &[StatePart],
    place: usize,
    reasoning: KeptReasoning,
) -> Option<JsonText> {
    let mut here = parts.iter().filter(|part| part.calls_before == place);
    let kept = here.find_map(|part| Some(part.data.read::<KeptPart>().ok()?.call?.extra_content));
    kept.or_else(|| {
        let is_unsigned = reasoning == KeptReasoning::Signed && place == 0;
        let signature = json!({ "google": { "thought_signature": NO_SIGNATURE } });
        is_unsigned.then(|| JsonText::from(signature))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_put_together_from_pieces() {
        let mut kept = KeptFields::default();
        for piece in [
            json!([{ "type": "reasoning.text", "text": "I ", "index": 0, "format": "x" }]),
            json!([{ "type": "reasoning.text", "text": "think", "index": 0, "signature": null }]),
            json!([{ "type": "reasoning.text", "signature": "SIG", "index": 0 }]),
            json!([{ "type": "reasoning.encrypted", "data": "AA", "index": 1 }]),
            json!([{ "type": "reasoning.encrypted", "data": "BB", "index": 2 }]),
        ] {
            kept.push_details(Some(piece.into()), true);
        }
        let part = kept.into_part(false).unwrap();
        let sent = message_fields(&[part], KeptReasoning::Details, false, false)
            .reasoning_details
            .unwrap();
        let whole = json!([
            { "type": "reasoning.text", "text": "I think", "index": 0, "format": "x", "signature": "SIG" },
            { "type": "reasoning.encrypted", "data": "AA", "index": 1 },
            { "type": "reasoning.encrypted", "data": "BB", "index": 2 },
        ]);
        assert_eq!(sent, whole);
    }

    #[test]
    fn signed_details_stay_apart() {
        let detail = |text: &str, signature: &str| json!({ "type": "reasoning.text", "text": text, "signature": signature });
        let (one, two) = (detail("a", "SIG-A"), detail("b", "SIG-B"));
        let unsigned = json!({ "type": "reasoning.summary", "summary": "c" });
        for (lists, are_pieces) in [
            (vec![json!([one, two, unsigned, unsigned])], false),
            (vec![json!([one]), json!([two]), json!([unsigned])], true),
        ] {
            let mut kept = KeptFields::default();
            for list in &lists {
                kept.push_details(Some(list.into()), are_pieces);
            }
            let part = kept.into_part(true).unwrap();
            let sent = message_fields(&[part], KeptReasoning::Details, true, true);
            let told: Vec<Value> =
                lists.iter().flat_map(|it| it.as_array().cloned().unwrap()).collect();
            assert_eq!(sent.reasoning_details.unwrap(), Value::from(told));
        }
    }

    #[test]
    fn reasoning_goes_back_with_calls_alone() {
        let kept = || {
            let mut kept = KeptFields::default();
            kept.push_reasoning(Some("I "), None);
            kept.push_reasoning(Some("think"), None);
            kept
        };
        assert_eq!(kept().into_part(false), None);
        let parts = [kept().into_part(true).unwrap()];
        let fields = |reasoning, has_calls| {
            message_fields(&parts, reasoning, has_calls, true).reasoning_content
        };
        assert_eq!(fields(KeptReasoning::AsItCame, true).as_deref(), Some("I think"));
        assert_eq!(fields(KeptReasoning::AsItCame, false), None);
        assert_eq!(fields(KeptReasoning::Nothing, true), None);
        let required = |any_calls| {
            message_fields(&[], KeptReasoning::Required, false, any_calls).reasoning_content
        };
        assert_eq!(required(true).as_deref(), Some(UNKNOWN_REASONING));
        assert_eq!(required(false), None);
    }
}
