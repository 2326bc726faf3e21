//! Quoted values, also in text that is itself a string in JSON or in a program.

use std::ops::Range;

/// Returns where the value stands whose opening quote is at `open`. One without a closing quote ends
/// with its line, or with the string around it.
///
/// A quote that is escaped belongs to the value. In a text that was itself escaped, quotes have
/// backslashes before them: 1 where that was once, 3 where twice.
pub(crate) fn value(text: &str, open: usize) -> Range<usize> {
    let bytes = text.as_bytes();
    let (quote, begin) = (bytes[open], open + 1);
    let depth = backslashes_before(bytes, open, 0);
    // JSON does not escape this one, so that what stands before it says little.
    let is_single = quote == b'\'';
    let mut bare = None;
    let mut closing = None;
    let mut at = begin;
    while let Some(found) = next(bytes, at, quote) {
        at = found + 1;
        let before = backslashes_before(bytes, found, begin);
        match bytes[found] {
            b'\n' | b'\r' => {
                return begin..closing.or(bare).unwrap_or(found);
            }
            // The string around ends.
            b'"' if is_single && before.is_multiple_of(2) && ends_string(&bytes[at..]) => {
                return begin..found;
            }
            b'"' if is_single => {
                bare = bare.or((before.is_multiple_of(2)).then_some(found));
            }
            _ if is_single => {
                if before == 0 {
                    return begin..found;
                }
                closing = closing.or((before.is_multiple_of(2)).then_some(found));
            }
            _ => {
                if let Some(level) = closed_level(before, depth) {
                    return begin..found - level;
                }
            }
        }
    }
    begin..closing.or(bare).unwrap_or(bytes.len())
}

/// Returns how many backslashes belong to a closing quote: of this string, or of one around it. At
/// each level of strings in strings, a quote has twice as many as before, and one.
fn closed_level(before: usize, depth: usize) -> Option<usize> {
    let mut levels = std::iter::successors(Some(0), |level| Some(level * 2 + 1));
    levels.by_ref().take_while(|level| *level <= depth).find(|level| {
        before.checked_sub(*level).is_some_and(|own| own.is_multiple_of(2 * (level + 1)))
    })
}

/// Does what follows a quote follow the end of a string in JSON?
fn ends_string(rest: &[u8]) -> bool {
    matches!(rest, [] | [b',' | b'}' | b']' | b':' | b' ' | b'\n' | b'\r', ..])
}

fn next(bytes: &[u8], at: usize, quote: u8) -> Option<usize> {
    let rest = &bytes[at..];
    let is_next = |byte: &u8| *byte == quote || matches!(byte, b'\n' | b'\r' | b'"');
    rest.iter().position(is_next).map(|index| at + index)
}

fn backslashes_before(bytes: &[u8], at: usize, from: usize) -> usize {
    bytes[from..at].iter().rev().take_while(|byte| **byte == b'\\').count()
}
