use std::sync::Arc;

use layer0::JsonText;
use layer0::message::{StopReason, ToolCall};
use serde_json::value::RawValue;

use crate::arguments::{parse, parse_arguments};
use crate::decode::from_slice;
use crate::json_scan::JsonScan;

/// A tool call as it is received, whole or in pieces.
///
/// [`Draft::finish`](crate::Draft::finish) turns it into a call once the stop reason is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallDraft {
    /// The id of the call; empty if the provider gives none.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// Provider state to send back with the call.
    pub kept: Option<JsonText>,
    /// The arguments as text, the form in which most protocols send JSON.
    text: String,
    /// The scan state of `text`.
    scan: JsonScan,
    /// The arguments as JSON, if they were received so; any text was received after them.
    json: Option<JsonText>,
}

impl CallDraft {
    /// Creates a call without arguments.
    pub fn new(id: impl Into<String>, name: impl Into<String>) -> Self {
        Self { id: id.into(), name: name.into(), ..Self::default() }
    }

    /// Appends a piece of the arguments' text.
    pub fn push(&mut self, piece: &str) {
        self.text.push_str(piece);
        self.scan.push(piece.as_bytes());
    }

    /// Adds received arguments: a string is a piece of their text, and `null` adds nothing.
    ///
    /// JSON after text, or after other JSON, is appended as text, which makes the arguments
    /// malformed, unless one of the two is an empty object as a placeholder.
    pub fn take(&mut self, arguments: Option<Box<RawValue>>) {
        match arguments.as_deref().and_then(ReceivedArguments::read) {
            Some(ReceivedArguments::Text(piece)) => self.push(&piece),
            Some(ReceivedArguments::Json(json)) if self.has_no_text() && self.has_no_fields() => {
                self.json = Some(json);
            }
            Some(ReceivedArguments::Json(json))
                if is_empty(&json) || self.json.as_ref() == Some(&json) => {}
            Some(ReceivedArguments::Json(json)) => self.push(json.get()),
            None => {}
        }
    }

    /// Replaces the arguments received so far, and returns whether it did. An empty text, `null`
    /// and an empty object do not replace earlier pieces.
    pub fn settle(&mut self, arguments: Option<Box<RawValue>>) -> bool {
        let Some(arguments) = arguments.as_deref().and_then(ReceivedArguments::read) else {
            return false;
        };
        if arguments.is_empty() && !(self.has_no_text() && self.has_no_fields()) {
            return false;
        }
        match arguments {
            ReceivedArguments::Text(text) if text.is_empty() => return false,
            ReceivedArguments::Text(text) => self.replace_text(&text),
            ReceivedArguments::Json(json) => {
                (self.json, self.text, self.scan) =
                    (Some(json), String::new(), JsonScan::default());
            }
        }
        true
    }

    /// Rewrites complete arguments in their canonical form, so that padding does not make
    /// comparisons expensive.
    pub fn compact(&mut self) {
        let json = Some(&self.text).filter(|_| self.json.is_none());
        if let Some(json) = json.and_then(|text| parse(text)).filter(JsonText::is_object) {
            self.replace_text(json.get());
        }
    }

    /// Returns the arguments of a complete call.
    #[must_use]
    pub fn whole_arguments(&self) -> JsonText {
        self.arguments(true)
    }

    fn replace_text(&mut self, text: &str) {
        (self.json, self.text, self.scan) = (None, String::new(), JsonScan::default());
        self.push(text);
    }

    /// Fills in missing parts of the call from another draft of the same call.
    pub fn fill(&mut self, other: &Self) {
        if self.id.is_empty() {
            self.id.clone_from(&other.id);
        }
        if self.name.is_empty() {
            self.name.clone_from(&other.name);
        }
        if self.kept.is_none() {
            self.kept.clone_from(&other.kept);
        }
        if self.has_no_fields() && (self.has_no_text() || self.text.trim() == "{}") {
            let Self { text, scan, json, .. } = other.clone();
            (self.text, self.scan) = (text, scan);
            self.json = json.or(self.json.take());
        }
    }

    /// Returns the approximate number of bytes held.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let json = [&self.json, &self.kept].into_iter().flatten().map(|json| json.get().len());
        let texts = self.id.len() + self.name.len() + self.text.len();
        size_of::<Self>() + texts + json.sum::<usize>()
    }

    /// Returns whether the arguments are an object with its closing bracket, so that no piece can be
    /// missing.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.scan.is_whole() || (self.has_no_text() && !self.has_no_fields())
    }

    /// Returns whether another draft has the same arguments.
    #[must_use]
    pub fn has_same_arguments(&self, other: &Self) -> bool {
        self.arguments(true) == other.arguments(true)
    }

    /// Returns whether no arguments were received.
    #[must_use]
    pub fn has_no_arguments(&self) -> bool {
        self.json.is_none() && self.has_no_text()
    }

    fn has_no_text(&self) -> bool {
        self.text.trim().is_empty()
    }

    fn has_no_fields(&self) -> bool {
        self.json.as_ref().is_none_or(is_empty)
    }

    fn arguments(&self, is_whole: bool) -> JsonText {
        match &self.json {
            Some(json) if self.has_no_text() => json.clone(),
            Some(json) if !is_empty(json) => {
                let text = parse(&self.text);
                text.filter(|text| text == json).unwrap_or_else(|| {
                    // Received twice, with different values.
                    JsonText::string(&format!("{json}{}", self.text))
                })
            }
            _ if is_whole => parse_arguments(&self.text),
            _ => cut_arguments(&self.text),
        }
    }

    fn finish(self, is_whole: bool) -> ToolCall {
        let arguments = self.arguments(is_whole);
        ToolCall::new(self.id, self.name, arguments)
    }
}

/// Converts the drafts of an answer with this stop reason to calls.
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

/// Returns whether JSON is the empty object.
fn is_empty(json: &JsonText) -> bool {
    json.get() == "{}"
}

/// Arguments as they are received.
enum ReceivedArguments {
    Text(String),
    Json(JsonText),
}

impl ReceivedArguments {
    fn read(json: &RawValue) -> Option<Self> {
        let json = Some(json.get()).filter(|json| *json != "null")?;
        if json.starts_with('"')
            && let Ok(text) = from_slice(json.as_bytes())
        {
            return Some(Self::Text(text));
        }
        // JSON that cannot be recorded is kept as text.
        Some(parse(json).map_or_else(|| Self::Text(json.to_owned()), Self::Json))
    }

    /// Returns whether these may be a placeholder for other arguments.
    fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => ["", "{}", "null"].contains(&text.trim()),
            Self::Json(json) => is_empty(json),
        }
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
                (StopReason::from_word("abducted"), &cut),
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

    /// Returns the arguments of a call made from pieces, each in its form on the wire.
    fn arguments(pieces: &[&str]) -> String {
        let mut draft = CallDraft::new("c", "t");
        for piece in pieces {
            draft.take(Some(RawValue::from_string((*piece).to_owned()).unwrap()));
        }
        finish_calls([draft], &StopReason::ToolUse)[0].arguments.get().to_owned()
    }

    /// Spec: P7, T3. They are given back, because nobody knows which of the two values was meant.
    #[test]
    fn arguments_with_a_repeated_key_stay_text() {
        let twice = r#"{"to":"ada","to":"bob"}"#;
        let text = serde_json::to_string(twice).unwrap();
        for pieces in [&[twice][..], &[&text], &["{}", twice], &[&text, "null"]] {
            assert_eq!(arguments(pieces), text, "{pieces:?}");
        }
        let mut draft = CallDraft::new("c", "t");
        draft.push(twice);
        draft.compact();
        assert_eq!(draft.whole_arguments(), json!(twice));
        assert_eq!(finish_calls([draft], &StopReason::MaxTokens)[0].arguments, json!(twice));
    }

    /// Spec: P7
    #[test]
    fn no_piece_of_arguments_is_lost() {
        let whole = r#"{"a":3.10}"#;
        let (head, tail) = (r#""{\"a\":""#, r#""3.10}""#);
        for placeholder in ["{}", "null", "\"\"", "\" \""] {
            assert_eq!(arguments(&[placeholder, head, tail]), whole, "{placeholder} before");
            assert_eq!(arguments(&[placeholder, whole]), whole, "{placeholder} before");
            assert_eq!(arguments(&[whole, placeholder]), whole, "{placeholder} behind");
            assert_eq!(arguments(&[head, tail, placeholder]), whole, "{placeholder} behind");
        }
        assert_eq!(arguments(&["{}"]), "{}");
        assert_eq!(arguments(&[whole, whole]), whole, "twice alike");
        assert_eq!(arguments(&[whole, head, tail]), whole, "twice alike");
        for (pieces, given_back) in [
            (&["[]", head, tail][..], r#""[]{\"a\":3.10}""#),
            (&[whole, r#""{}""#], r#""{\"a\":3.10}{}""#),
            (&[r#""{}""#, head, tail], r#""{}{\"a\":3.10}""#),
            (&[whole, r#"{"a":4}"#], r#""{\"a\":3.10}{\"a\":4}""#),
            (&[head, tail, r#"{"a":4}"#], r#""{\"a\":3.10}{\"a\":4}""#),
        ] {
            assert_eq!(arguments(pieces), given_back, "{pieces:?}");
        }
    }
}
