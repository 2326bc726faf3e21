//! Strings and scalars of a JSON text. Redacted parts are aligned with them, so that the text stays valid.

use std::ops::Range;

use serde_json::value::RawValue;

use crate::ranges::RedactionRange;
use crate::steps;

/// Returns whether a text is one JSON value that contains strings.
pub(crate) fn is_json(text: &str) -> bool {
    let begins = text.trim_start().starts_with(['{', '[', '"']);
    steps::count(text.len());
    begins && serde_json::from_str::<&RawValue>(text).is_ok()
}

/// Aligns likely secrets with a JSON text: a part ends with its string or scalar, and one that
/// begins in neither is dropped.
pub(crate) fn fit_shapes(text: &str, found: &mut Vec<RedactionRange>) {
    fit(text, found, |found, token| match token {
        Some(JsonToken { range, is_string: true }) => {
            found.range.end = found.range.end.min(range.end);
        }
        Some(JsonToken { range, is_string: false }) => found.take_scalar(range),
        None => found.range.end = found.range.start,
    });
}

/// Aligns certain secrets with a JSON text: a scalar is redacted as a whole, and its mark is a
/// string. A part of more than one token is redacted too, which makes the JSON invalid.
pub(crate) fn fit_secrets(text: &str, found: &mut Vec<RedactionRange>) {
    fit(text, found, |found, token| match token {
        Some(JsonToken { range, is_string: false }) if found.range.end <= range.end => {
            found.take_scalar(range);
        }
        _ => {}
    });
}

impl RedactionRange {
    fn take_scalar(&mut self, scalar: Range<usize>) {
        (self.range, self.quote) = (scalar, "\"");
    }
}

/// A token of a JSON text: the inside of a string, or a number or word.
#[derive(Clone)]
struct JsonToken {
    range: Range<usize>,
    is_string: bool,
}

/// Passes each part to `fit`, with the token in which it begins.
fn fit(
    text: &str,
    found: &mut Vec<RedactionRange>,
    mut fit: impl FnMut(&mut RedactionRange, Option<JsonToken>),
) {
    found.sort_by_key(|found| found.range.start);
    let mut tokens = Tokens { bytes: text.as_bytes(), at: 0 }.peekable();
    for found in &mut *found {
        let start = found.range.start;
        while tokens.next_if(|token| token.range.end <= start).is_some() {}
        let token = tokens.peek().filter(|token| token.range.start <= start);
        fit(found, token.cloned());
    }
    found.retain(|found| !found.range.is_empty());
}

struct Tokens<'t> {
    bytes: &'t [u8],
    at: usize,
}

impl Iterator for Tokens<'_> {
    type Item = JsonToken;

    fn next(&mut self) -> Option<JsonToken> {
        let is_between = |byte: u8| {
            byte.is_ascii_whitespace() || matches!(byte, b'{' | b'}' | b'[' | b']' | b',' | b':')
        };
        let start = self.at + self.bytes[self.at..].iter().position(|byte| !is_between(*byte))?;
        let is_string = self.bytes[start] == b'"';
        let begin = start + usize::from(is_string);
        let mut end = begin;
        while let Some(byte) = self.bytes.get(end) {
            match byte {
                b'"' if is_string => break,
                b'\\' => end += 1,
                byte if !is_string && is_between(*byte) => break,
                _ => {}
            }
            end += 1;
        }
        steps::count(end - self.at);
        self.at = end + usize::from(is_string);
        Some(JsonToken { range: begin..end, is_string })
    }
}
