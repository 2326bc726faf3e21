//! The content of an answer: text, or parts of text and of thinking.

use backstop_provider_http::{AnswerPiece, pieces};
use layer0::JsonText;
use layer0::message::StatePart;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

/// The content of an answer, or a piece of content: text, or the parts that some endpoints send instead.
pub(super) struct ChatAnswerContent(pub(super) Vec<ContentPiece>);

/// A part of the content, or a piece of one.
pub(super) enum ContentPiece {
    Text(String),
    /// Mistral's form: a list of texts of thinking, with other fields to send back.
    Thought(Map<String, Value>),
}

impl<'de> Deserialize<'de> for ChatAnswerContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut pieces = Vec::new();
        read(Value::deserialize(deserializer)?, &mut pieces);
        Ok(Self(pieces))
    }
}

fn read(content: Value, pieces: &mut Vec<ContentPiece>) {
    match content {
        Value::String(text) => pieces.push(ContentPiece::Text(text)),
        Value::Array(parts) => parts.into_iter().for_each(|part| read(part, pieces)),
        Value::Object(part) if part.contains_key("thinking") => {
            pieces.push(ContentPiece::Thought(part));
        }
        Value::Object(mut part) => pieces.extend(match part.remove("text") {
            Some(Value::String(text)) => Some(ContentPiece::Text(text)),
            Some(Value::Number(number)) => Some(ContentPiece::Text(number.to_string())),
            _ => None,
        }),
        // These are no text.
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the text of a thought.
pub(super) fn thought_text(thought: &Map<String, Value>) -> String {
    fn add(value: &Value, text: &mut String) {
        match value {
            Value::String(piece) => text.push_str(piece),
            Value::Array(parts) => parts.iter().for_each(|part| add(part, text)),
            Value::Object(part) => part.get("text").into_iter().for_each(|it| add(it, text)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut text = String::new();
    thought.get("thinking").into_iter().for_each(|thinking| add(thinking, &mut text));
    text
}

/// Returns the approximate number of bytes in the fields of a thought.
pub(super) fn held_bytes(thought: &Map<String, Value>) -> usize {
    fn value_bytes(value: &Value) -> usize {
        let inner = match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(value_bytes).sum(),
            Value::Object(fields) => held_bytes(fields),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        };
        size_of::<Value>() + inner
    }
    thought.iter().map(|(name, value)| size_of::<String>() + name.len() + value_bytes(value)).sum()
}

/// The thoughts among the parts of an answer, each with the length of the text before it.
#[derive(Debug, Default)]
pub(super) struct Thoughts(Vec<(usize, Map<String, Value>)>);

impl Thoughts {
    /// Adds a thought. In a stream, a thought that follows another without text between them continues it.
    pub(super) fn push(&mut self, text_before: usize, thought: Map<String, Value>, is_piece: bool) {
        match self.0.last_mut() {
            Some((place, last)) if is_piece && *place == text_before => extend(last, thought),
            _ => self.0.push((text_before, thought)),
        }
    }

    /// Returns the parts to keep. A thought that cannot be recorded is dropped.
    pub(super) fn into_parts(self) -> impl Iterator<Item = StatePart> {
        let part = |(text_before, thought): (usize, Map<String, Value>)| {
            let thought = JsonText::parse(&Value::Object(thought).to_string()).ok()?;
            let mut part = StatePart::new(JsonText::from_value(&KeptThought { thought }).ok()?);
            part.text_before = text_before;
            Some(part)
        };
        self.0.into_iter().filter_map(part)
    }
}

/// Adds a piece to a thought: its texts are appended, its other fields replace earlier ones.
fn extend(thought: &mut Map<String, Value>, piece: Map<String, Value>) {
    for (key, mut value) in piece {
        // An endpoint may change from texts to lists of them.
        if key == "thinking"
            && let Some(known) = thought.get_mut(&key)
            && known.is_array() != value.is_array()
        {
            make_list(known);
            make_list(&mut value);
        }
        match (thought.get_mut(&key), value) {
            (Some(Value::Array(texts)), Value::Array(more)) if key == "thinking" => {
                more.into_iter().for_each(|part| add_text(texts, part));
            }
            (Some(Value::String(text)), Value::String(more)) if key == "thinking" => {
                text.push_str(&more);
            }
            (_, Value::Null) => {}
            (_, value) => drop(thought.insert(key, value)),
        }
    }
}

/// Makes a list of a text.
fn make_list(thinking: &mut Value) {
    if let Value::String(text) = thinking {
        *thinking = json!([{ "type": "text", "text": std::mem::take(text) }]);
    }
}

/// Adds a part of a thought; a text is joined with a text before it.
fn add_text(texts: &mut Vec<Value>, part: Value) {
    fn text_mut(part: &mut Value) -> Option<&mut String> {
        let is_text = part["type"] == "text";
        let fields = part.as_object_mut().filter(|_| is_text)?;
        match fields.get_mut("text") {
            Some(Value::String(text)) => Some(text),
            _ => None,
        }
    }
    let mut part = part;
    match (texts.last_mut().and_then(text_mut), text_mut(&mut part)) {
        (Some(text), Some(more)) => text.push_str(more),
        _ => texts.push(part),
    }
}

/// A kept part with a thought.
#[derive(Serialize, Deserialize)]
struct KeptThought {
    thought: JsonText,
}

/// The content of an earlier answer, in the form sent back.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum SaidContent<'a> {
    Parts(Vec<SaidPart<'a>>),
    /// Plain text is a string, which every endpoint supports.
    Text(&'a str),
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum SaidPart<'a> {
    Text {
        r#type: &'static str,
        text: &'a str,
    },
    /// A thought as it was received.
    Thought(JsonText),
}

impl<'a> SaidContent<'a> {
    /// Makes the content of an answer, with its thoughts at their original positions.
    pub(super) fn new(text: &'a str, kept: &[StatePart]) -> Self {
        let thoughts: Vec<StatePart> = kept
            .iter()
            .filter_map(|part| {
                let mut thought = StatePart::new(part.data.read::<KeptThought>().ok()?.thought);
                thought.text_before = part.text_before;
                Some(thought)
            })
            .collect();
        if thoughts.is_empty() {
            return Self::Text(text);
        }
        let parts = pieces(text, 0, &thoughts).into_iter().filter_map(|piece| match piece {
            AnswerPiece::Text(text) => Some(SaidPart::Text { r#type: "text", text }),
            AnswerPiece::Kept(thought) => Some(SaidPart::Thought(thought)),
            AnswerPiece::Call(_) => None,
        });
        Self::Parts(parts.collect())
    }

    /// Returns whether the content is empty.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Text(text) if text.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thought(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn thoughts_are_put_together_from_pieces() {
        let texts = |text: &str| json!([{ "type": "text", "text": text }]);
        let mut thoughts = Thoughts::default();
        for (before, piece) in [
            (0, json!({ "type": "thinking", "thinking": texts("I "), "signature": null })),
            (0, json!({ "type": "thinking", "thinking": texts("think"), "closed": true })),
            (0, json!({ "type": "thinking", "thinking": [], "signature": "SIG" })),
            (2, json!({ "type": "thinking", "thinking": texts("more") })),
        ] {
            thoughts.push(before, thought(piece), true);
        }
        let parts: Vec<StatePart> = thoughts.into_parts().collect();
        let SaidContent::Parts(sent) = SaidContent::new("So it is", &parts) else {
            panic!("it is text alone")
        };
        let whole = json!({
            "type": "thinking", "thinking": texts("I think"), "closed": true, "signature": "SIG",
        });
        let expected = json!([
            whole,
            { "type": "text", "text": "So" },
            { "type": "thinking", "thinking": texts("more") },
            { "type": "text", "text": " it is" },
        ]);
        assert_eq!(JsonText::from_value(&sent).unwrap(), expected);
        assert_eq!(thought_text(&thought(whole)), "I think");
    }

    /// Spec: P7. A thought that comes as text and then as a list.
    #[test]
    fn texts_and_lists_are_one_thought() {
        let list = |text: &str| json!([{ "type": "text", "text": text }]);
        for pieces in [[json!("I "), list("think")], [list("I "), json!("think")]] {
            let mut thoughts = Thoughts::default();
            for piece in pieces {
                thoughts.push(0, thought(json!({ "thinking": piece })), true);
            }
            let parts: Vec<StatePart> = thoughts.into_parts().collect();
            let SaidContent::Parts(sent) = SaidContent::new("", &parts) else {
                panic!("it is text alone")
            };
            let whole = json!([{ "thinking": list("I think") }]);
            assert_eq!(JsonText::from_value(&sent).unwrap(), whole);
        }
    }

    /// Spec: E11. A part may have no type.
    #[test]
    fn parts_without_a_type_are_kept() {
        let mut thoughts = Thoughts::default();
        for piece in ["I ", "think"] {
            thoughts.push(0, thought(json!({ "thinking": [{ "text": piece }, 1] })), true);
        }
        let parts: Vec<StatePart> = thoughts.into_parts().collect();
        let SaidContent::Parts(sent) = SaidContent::new("", &parts) else {
            panic!("it is text alone")
        };
        let whole = json!([{ "thinking": [{ "text": "I " }, 1, { "text": "think" }, 1] }]);
        assert_eq!(JsonText::from_value(&sent).unwrap(), whole);
    }
}
