//! Calls of tools that run at the provider, and their results.

use std::collections::{BTreeMap, BTreeSet};

use backstop_provider_http::keep_field;
use layer0::JsonText;
use layer0::message::StatePart;
use serde::Deserialize;

/// The field of a block with a tool call.
pub(crate) const CALL: &str = "toolUse";
/// The field of a block with a tool's result.
pub(crate) const RESULT: &str = "toolResult";

/// A block of a tool that runs at the provider, in a stream.
#[derive(Debug)]
pub(crate) struct StreamedBlock {
    /// The name of its field in a block.
    field: &'static str,
    /// The fields at its start.
    head: JsonText,
    /// The input of a call so far.
    input: String,
    /// The content of a result so far.
    content: Vec<JsonText>,
    content_bytes: usize,
}

/// A piece of a result's content.
#[derive(Deserialize)]
struct TextPiece {
    text: String,
}

impl StreamedBlock {
    pub(crate) const fn new(field: &'static str, head: JsonText) -> Self {
        Self { field, head, input: String::new(), content: Vec::new(), content_bytes: 0 }
    }

    /// Adds a piece of a call's input.
    pub(crate) fn push_input(&mut self, piece: &str) {
        self.input.push_str(piece);
    }

    /// Adds pieces of a result's content.
    pub(crate) fn push_content(&mut self, pieces: Vec<JsonText>) {
        let bytes = pieces.iter().map(|piece| size_of::<JsonText>() + piece.get().len());
        self.content_bytes += bytes.sum::<usize>();
        self.content.extend(pieces);
    }

    pub(crate) const fn held_bytes(&self) -> usize {
        self.input.len() + self.content_bytes
    }

    /// Returns the whole block; `None` if it cannot be recorded.
    pub(crate) fn into_block(self) -> Option<JsonText> {
        let mut fields: BTreeMap<String, JsonText> = self.head.read().ok()?;
        if self.field == CALL {
            let input = JsonText::parse(&self.input).ok().filter(JsonText::is_object);
            fields
                .insert("input".to_owned(), input.unwrap_or_else(|| serde_json::json!({}).into()));
        } else {
            let content = JsonText::from_value(&join_texts(self.content)).ok()?;
            fields.insert("content".to_owned(), content);
        }
        keep_field(self.field, &JsonText::from_value(&fields).ok()?)
    }
}

/// Joins consecutive texts, which are pieces of one.
fn join_texts(pieces: Vec<JsonText>) -> Vec<JsonText> {
    let mut content = Vec::new();
    let mut text = String::new();
    let flush = |text: &mut String, content: &mut Vec<JsonText>| {
        if !text.is_empty() {
            content.extend(keep_field("text", &JsonText::string(&std::mem::take(text))));
        }
    };
    for piece in pieces {
        match piece.read::<TextPiece>() {
            Ok(piece) => text.push_str(&piece.text),
            Err(_) => {
                flush(&mut text, &mut content);
                content.push(piece);
            }
        }
    }
    flush(&mut text, &mut content);
    content
}

/// A kept part of an answer, in the form sent back.
#[derive(Debug)]
pub(crate) enum KeptBlock {
    Call(JsonText),
    Reasoning(JsonText),
    Result(JsonText),
}

/// The id of a served call, or of the call that a result belongs to.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServedId {
    tool_use_id: String,
}

/// The served calls of an answer that have a result in it: Bedrock refuses all others in each later
/// request, and an answer may be cut off before a result.
#[derive(Debug, Default)]
pub(crate) struct AnsweredCalls(BTreeSet<String>);

impl AnsweredCalls {
    pub(crate) fn new(kept: &[StatePart]) -> Self {
        let ids = |field: &str| -> BTreeSet<String> {
            kept.iter().filter_map(|part| read_id(read_field(&part.data, field)?)).collect()
        };
        Self(ids(CALL).intersection(&ids(RESULT)).cloned().collect())
    }

    /// Returns a kept part in the form sent back; `None` if Bedrock would refuse it.
    pub(crate) fn block(&self, part: JsonText) -> Option<KeptBlock> {
        let has_pair =
            |data: &JsonText| read_id(data.clone()).is_some_and(|id| self.0.contains(&id));
        if let Some(call) = read_field(&part, CALL) {
            return has_pair(&call).then_some(KeptBlock::Call(call));
        }
        if let Some(result) = read_field(&part, RESULT) {
            return has_pair(&result).then_some(KeptBlock::Result(result));
        }
        Some(KeptBlock::Reasoning(part))
    }
}

fn read_field(part: &JsonText, field: &str) -> Option<JsonText> {
    backstop_provider_http::kept_field(part, field)
}

fn read_id(data: JsonText) -> Option<String> {
    data.read::<ServedId>().ok().map(|call| call.tool_use_id)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_of_results_are_joined() {
        let mut result = StreamedBlock::new(RESULT, json!({ "toolUseId": "s" }).into());
        for pieces in [
            vec![json!({ "text": "a" }), json!({ "text": "b" })],
            vec![json!({ "json": { "n": 1 } })],
            vec![json!({ "text": "c" })],
        ] {
            result.push_content(pieces.into_iter().map(JsonText::from).collect());
        }
        let content = json!([{ "text": "ab" }, { "json": { "n": 1 } }, { "text": "c" }]);
        let whole = json!({ "toolResult": { "toolUseId": "s", "content": content } });
        assert_eq!(result.into_block().unwrap(), whole);
    }

    #[test]
    fn calls_without_results_are_left_out() {
        let part = |field: &str, id: &str| {
            StatePart::new(json!({ field: { "toolUseId": id, "name": "search" } }))
        };
        let kept = [part(CALL, "a"), part(RESULT, "a"), part(CALL, "b"), part(RESULT, "c")];
        let answered = AnsweredCalls::new(&kept);
        let sent = kept.map(|part| answered.block(part.data).is_some());
        assert_eq!(sent, [true, true, false, false]);
    }
}
