//! Escapes that make text of others safe for a terminal.
//!
//! Characters that could control a terminal, change the direction of writing or hide are written as in JSON, such as
//! `\u001b`. All output is escaped here.

use std::fmt::Write;

use backstop_event_log::{escape_json, is_harmful, is_joiner_needed};

/// Escapes a text of several lines. Line ends and tabs stay.
pub(crate) fn text(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut before = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let stays = matches!(c, '\n' | '\t')
            || !is_harmful(c)
            || is_joiner_needed(before, c, chars.peek().copied());
        push(&mut safe, c, !stays);
        before = Some(c);
    }
    safe
}

/// Escapes a text that must stay on one line.
pub(crate) fn line(line: &str) -> String {
    text(line).replace('\n', "\\n")
}

/// Escapes a text for a cell of a table: also a tab, which would move the columns behind it.
pub(crate) fn cell(cell: &str) -> String {
    line(cell).replace('\t', "\\t")
}

/// Escapes JSON text into equal JSON. Line ends between its tokens stay.
pub(crate) fn json(json: &str) -> String {
    escape_json(json).into_owned()
}

/// Escapes JSON text for a person's decision: also characters that look like a space.
pub(super) fn strict_json(json: &str) -> String {
    strict(json, |c| c == '\n')
}

/// Escapes a line for a person's decision, as [`strict_json`] does.
pub(super) fn strict_text(line: &str) -> String {
    strict(line, |_| false)
}

fn strict(text: &str, stays: impl Fn(char) -> bool) -> String {
    let blank = |c: char| {
        !matches!(c, ' ' | '\n') && c.is_whitespace()
            || matches!(c, '\u{2800}' | '\u{FE00}'..='\u{FE0F}')
    };
    let mut safe = String::with_capacity(text.len());
    text.chars().for_each(|c| push(&mut safe, c, !stays(c) && is_harmful(c) || blank(c)));
    safe
}

fn push(text: &mut String, c: char, escaped: bool) {
    match c {
        c if !escaped => text.push(c),
        '\n' => text.push_str("\\n"),
        '\r' => text.push_str("\\r"),
        '\t' => text.push_str("\\t"),
        c => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(text, "\\u{unit:04x}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Characters that must not reach a terminal, one of each kind.
    const HARMFUL: &str = "\u{1b}\u{0}\u{8}\r\u{7f}\u{80}\u{9b}\u{9d}\u{ad}\u{61c}\u{200b}\u{200d}\
        \u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2060}\u{2066}\u{2069}\u{feff}\u{e0041}";

    #[track_caller]
    fn check(given: &str, expected: &str) {
        assert_eq!(text(given), expected);
    }

    /// Spec: C1, D10
    #[test]
    fn text_is_harmless_for_a_terminal() {
        let safe = text(HARMFUL);
        assert!(safe.is_ascii() && !safe.contains(|c: char| c.is_control()), "{safe}");
        assert_eq!(safe.matches('\\').count(), HARMFUL.chars().count() + 1, "{safe}");
        check("\u{1b}[2J\u{1b}]0;x\u{7}", "\\u001b[2J\\u001b]0;x\\u0007");
        check("a\u{9b}31m\u{7f}b", "a\\u009b31m\\u007fb");
        check("a\u{202e}b\u{2066}c", "a\\u202eb\\u2066c");
        check("a\u{e0041}b", "a\\udb40\\udc41b");
        check("one\ntwo\tthree\r", "one\ntwo\tthree\\r");
        check("Grüße, 世界 👍🏽", "Grüße, 世界 👍🏽");
        assert_eq!(line("one\nerror: two"), "one\\nerror: two");
    }

    #[test]
    fn joiners_stay_only_where_writing_needs_them() {
        check("👨\u{200d}👩 می\u{200c}خواهم", "👨\u{200d}👩 می\u{200c}خواهم");
        check("r\u{200d}m ö\u{200d}m \u{200d}", "r\\u200dm ö\\u200dm \\u200d");
    }

    #[test]
    fn escaped_json_is_the_same_json() {
        let value = json!({ "a\u{9b}\u{200d}": HARMFUL, "b": "\u{a0}\u{2800}\n", "c": [1.5, "ö"] });
        for escape in [json, strict_json] {
            for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                let safe = escape(&text);
                assert_eq!(serde_json::from_str::<Value>(&safe).unwrap(), value);
                assert!(!safe.contains(|c: char| c != '\n' && is_harmful(c)), "{safe}");
            }
        }
        assert!(!strict_json(&value.to_string()).contains(['\u{a0}', '\u{2800}']));
    }
}
