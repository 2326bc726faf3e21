//! JSON without characters that control a terminal.
//!
//! Characters that control a terminal, change the direction of text or are invisible are escaped as in `\u001b`, which
//! is the same JSON. Records are hashed in this form, so that it can be printed and verified alike.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns whether a character is a control character (C0, DEL, C1), sets the direction of text or has no width.
///
/// These are the `Default_Ignorable_Code_Point`s of Unicode except the variation selectors U+FE00 to U+FE0F, which
/// choose between pictures and text, and in addition the separators of lines and paragraphs and the marks of
/// annotations (U+FFF9 to U+FFFB). The list is part of the record's format.
#[must_use]
pub fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}'
            | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}' | '\u{3164}' | '\u{FEFF}' | '\u{FFA0}'
            | '\u{FFF0}'..='\u{FFFB}' | '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}'
            | '\u{E0000}'..='\u{E0FFF}')
}

/// Returns whether a harmful character is a joiner that the script needs at this position: inside an emoji, or between
/// Persian or Indic letters.
#[must_use]
pub fn is_joiner_needed(before: Option<char>, c: char, after: Option<char>) -> bool {
    let is_written = |c: char| !c.is_ascii() && !is_harmful(c);
    matches!(c, '\u{200C}' | '\u{200D}')
        && before.is_some_and(is_written)
        && after.is_some_and(is_written)
}

/// Escapes harmful characters in JSON text, which stays the same JSON. Line breaks between tokens stay.
#[must_use]
pub fn escape_json(json: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| c != '\n' && is_harmful(c);
    // Most texts are ASCII without controls, which serde_json escapes. A check in pieces compares many bytes at a time.
    let is_plain = |byte: &u8| matches!(byte, b'\n' | b' '..=b'~');
    let are_plain = |piece: &[u8]| piece.iter().fold(true, |plain, byte| plain & is_plain(byte));
    if json.as_bytes().chunks(64).all(are_plain) || !json.contains(is_escaped) {
        return Cow::Borrowed(json);
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if !is_escaped(c) {
            safe.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(safe, "\\u{unit:04x}");
        }
    }
    Cow::Owned(safe)
}
