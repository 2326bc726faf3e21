use std::sync::Arc;

use layer0::JsonText;
use layer0::message::{StopReason, ToolCall};
use serde_json::value::RawValue;

use crate::arguments::{parse, parse_arguments};
use crate::decode::from_slice;

/// A tool call as it comes over the wire, whole or in pieces. [`Draft::finish`](crate::Draft::finish)
/// makes a call of it, once it is known why the answer stopped.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallDraft {
    /// The call's id; empty where the provider gives none.
    pub id: String,
    /// The tool.
    pub name: String,
    /// What the provider wants back with the call.
    pub kept: Option<JsonText>,
    /// The arguments as text, which is how most protocols send JSON.
    text: String,
    /// The arguments as the JSON itself, where they came so.
    json: Option<JsonText>,
}

impl CallDraft {
    /// Begins a call that has no arguments yet.
    pub fn new(id: impl Into<String>, name: impl Into<String>) -> Self {
        Self { id: id.into(), name: name.into(), ..Self::default() }
    }

    /// Adds a piece of the arguments' text.
    pub fn push(&mut self, piece: &str) {
        self.text.push_str(piece);
    }

    /// Takes arguments from the wire: a string is a piece of their text, `null` says nothing.
    pub fn take(&mut self, arguments: Option<Box<RawValue>>) {
        match arguments.as_deref().and_then(Told::of) {
            Some(Told::Text(piece)) => self.push(&piece),
            Some(Told::Json(json)) => self.json = Some(json),
            None => {}
        }
    }

    /// Takes arguments as a whole, in place of the pieces before; an empty text or `null` says
    /// nothing.
    pub fn settle(&mut self, arguments: Option<Box<RawValue>>) {
        match arguments.as_deref().and_then(Told::of) {
            Some(Told::Text(text)) if text.is_empty() => {}
            Some(Told::Text(text)) => self.text = text,
            Some(Told::Json(json)) => self.json = Some(json),
            None => {}
        }
    }

    /// Fills in what is not known of the call with what another draft of it knows.
    pub fn fill(&mut self, other: &Self) {
        if self.id.is_empty() {
            self.id.clone_from(&other.id);
        }
        if self.name.is_empty() {
            self.name.clone_from(&other.name);
        }
        if self.json.is_none() && self.text.is_empty() {
            self.text.clone_from(&other.text);
            self.json.clone_from(&other.json);
        }
    }

    fn finish(self, is_whole: bool) -> ToolCall {
        let arguments = match self.json {
            Some(json) => json,
            None if is_whole => parse_arguments(&self.text),
            None => cut_arguments(&self.text),
        };
        ToolCall::new(self.id, self.name, arguments)
    }
}

/// Makes the calls of an answer that stopped for this reason.
pub(crate) fn finish_calls(
    drafts: impl IntoIterator<Item = CallDraft>,
    stop_reason: &StopReason,
) -> Arc<[ToolCall]> {
    let is_whole = stop_reason.lets_calls_run();
    drafts.into_iter().map(|draft| draft.finish(is_whole)).collect()
}

fn cut_arguments(text: &str) -> JsonText {
    parse(text).filter(JsonText::is_object).unwrap_or_else(|| JsonText::string(text))
}

/// Arguments as they come over the wire.
enum Told {
    Text(String),
    Json(JsonText),
}

impl Told {
    fn of(json: &RawValue) -> Option<Self> {
        let json = Some(json.get()).filter(|json| *json != "null")?;
        if json.starts_with('"')
            && let Ok(text) = from_slice(json.as_bytes())
        {
            return Some(Self::Text(text));
        }
        // What cannot be recorded as JSON is given back as the text it is.
        Some(parse(json).map_or_else(|| Self::Text(json.to_owned()), Self::Json))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;
    use serde_json::{Value, json};

    use super::*;

    /// Spec: P9
    #[test]
    fn cut_arguments_stay_text_unless_whole() {
        #[track_caller]
        fn check(written: &str, whole: Value, cut: Value) {
            let mut draft = CallDraft::new("c", "t");
            written.split_inclusive('1').for_each(|piece| draft.push(piece));
            for (reason, expected) in [
                (StopReason::End, &whole),
                (StopReason::ToolUse, &whole),
                (StopReason::MaxTokens, &cut),
                (StopReason::Refusal, &cut),
                (StopReason::ContentFilter, &cut),
                (StopReason::Pause, &cut),
                (StopReason::ContextExceeded, &cut),
                (StopReason::Malformed, &cut),
                (StopReason::named("abducted"), &cut),
            ] {
                let calls = finish_calls([draft.clone()], &reason);
                assert_eq!(calls[0].arguments, *expected, "{written} {reason:?}");
            }
        }
        check("", json!({}), json!(""));
        check(" \n", json!({}), json!(" \n"));
        check("null", json!({}), json!("null"));
        check("{}", json!({}), json!({}));
        check(r#"{"a": 1"#, json!(r#"{"a": 1"#), json!(r#"{"a": 1"#));
        check(r#"{"a": 1}"#, json!({"a": 1}), json!({"a": 1}));
        check("12", json!(12), json!("12"));
    }

    #[test]
    fn what_comes_last_as_a_whole_counts() {
        let mut draft = CallDraft::new("c", "t");
        draft.take(to_raw_value(&json!("{\"a\"")).ok());
        draft.take(to_raw_value(&json!(null)).ok());
        draft.settle(to_raw_value(&json!("")).ok());
        draft.settle(to_raw_value(&json!("{\"b\": 2}")).ok());
        assert_eq!(finish_calls([draft.clone()], &StopReason::End)[0].arguments, json!({"b": 2}));
        draft.settle(to_raw_value(&json!({ "c": 3 })).ok());
        let mut bare = CallDraft::new("c", "");
        bare.fill(&draft);
        assert_eq!(bare.name, "t");
        assert_eq!(finish_calls([bare], &StopReason::End)[0].arguments, json!({"c": 3}));
    }
}
