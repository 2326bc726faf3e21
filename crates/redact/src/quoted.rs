//! Quoted values, also in text that is itself a string in JSON or in a program.

use std::ops::Range;

use crate::steps;

/// Returns the range of the value whose opening quote is at `open`. Without a closing quote, it
/// ends with its line, or with the string around it.
///
/// An escaped quote belongs to the value. In a text that was itself escaped, quotes have
/// backslashes before them: 1 after one escaping, 3 after two.
pub(crate) fn value(text: &str, open: usize) -> Range<usize> {
    Quotes::default().value(text, open)
}

/// A reader of several values of one text. It remembers how far it has searched: if single quotes
/// are all escaped, many values have their end at the same place.
#[derive(Debug, Default)]
pub(crate) struct Quotes {
    end: Next,
    single: Next,
    double: Next,
}

impl Quotes {
    /// Reads a value like [`value`].
    pub(crate) fn value(&mut self, text: &str, open: usize) -> Range<usize> {
        let bytes = text.as_bytes();
        match bytes[open] {
            b'\'' => open + 1..self.single_quoted(bytes, open + 1),
            quote => open + 1..double_quoted(bytes, open, quote),
        }
    }

    /// Returns the end of a value in single quotes. JSON does not escape these, so the backslashes
    /// before the opening quote are no reliable measure.
    fn single_quoted(&mut self, bytes: &[u8], begin: usize) -> usize {
        let is_even = |at: usize| backslashes_before(bytes, at).is_multiple_of(2);
        let ends = |at: usize| match bytes[at] {
            b'\n' | b'\r' => true,
            b'\'' => backslashes_before(bytes, at) == 0,
            // The end of the string around.
            b'"' => is_even(at) && ends_string(&bytes[at + 1..]),
            _ => false,
        };
        let end = self.end.at_or_behind(begin, bytes.len(), ends);
        if let Some(b'\'' | b'"') = bytes.get(end) {
            return end;
        }
        let closing = |at: usize| bytes[at] == b'\'' && is_even(at);
        let single = self.single.at_or_behind(begin, end, closing);
        let double = self.double.at_or_behind(begin, end, |at| bytes[at] == b'"' && is_even(at));
        [single, double].into_iter().find(|at| *at < end).unwrap_or(end)
    }
}

/// The next place of a kind, or the end of the search for it, and the start from which that is known.
#[derive(Debug, Default)]
struct Next(Option<Range<usize>>);

impl Next {
    /// Returns the first place of the kind from `from` on, or `last`, which is the same for every
    /// place before it.
    fn at_or_behind(&mut self, from: usize, last: usize, is: impl Fn(usize) -> bool) -> usize {
        let known = self.0.clone().filter(|known| from <= known.end && known.start <= last);
        let (until, behind) = known.map_or((last, last), |known| (known.start, known.end));
        if until <= from {
            return behind;
        }
        let next = (from..until).find(|at| is(*at));
        steps::count(next.unwrap_or(until) - from);
        let next = next.unwrap_or(behind);
        self.0 = Some(from..next);
        next
    }
}

/// Returns the end of a value in double quotes or backticks.
fn double_quoted(bytes: &[u8], open: usize, quote: u8) -> usize {
    let depth = backslashes_before(bytes, open);
    let mut at = open + 1;
    while let Some(found) = next(bytes, at, quote) {
        steps::count(found - at);
        at = found + 1;
        if matches!(bytes[found], b'\n' | b'\r') {
            return found;
        }
        if let Some(level) = closed_level(backslashes_before(bytes, found), depth) {
            return found - level;
        }
    }
    bytes.len()
}

/// Returns the number of backslashes that belong to a closing quote: of this string, or of one
/// around it. Each level of nested strings doubles the number and adds one.
fn closed_level(before: usize, depth: usize) -> Option<usize> {
    let mut levels = std::iter::successors(Some(0), |level| Some(level * 2 + 1));
    levels.by_ref().take_while(|level| *level <= depth).find(|level| {
        before.checked_sub(*level).is_some_and(|own| own.is_multiple_of(2 * (level + 1)))
    })
}

/// Returns whether the text after a quote is that after the end of a JSON string.
fn ends_string(rest: &[u8]) -> bool {
    matches!(rest, [] | [b',' | b'}' | b']' | b':' | b' ' | b'\n' | b'\r', ..])
}

fn next(bytes: &[u8], at: usize, quote: u8) -> Option<usize> {
    let rest = &bytes[at..];
    let is_next = |byte: &u8| *byte == quote || matches!(byte, b'\n' | b'\r' | b'"');
    rest.iter().position(is_next).map(|index| at + index)
}

/// Counts the backslashes before a quote. Those of a value stop at its opening quote.
fn backslashes_before(bytes: &[u8], at: usize) -> usize {
    bytes[..at].iter().rev().take_while(|byte| **byte == b'\\').count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Quotes, value};

    proptest! {
        /// Spec: P7, S9
        #[test]
        fn remembered_ends_are_the_ends(text in "[\\\\'\"`\n, a]{0,40}", back in 0..4_usize) {
            let opens: Vec<usize> =
                text.match_indices(['\'', '"', '`']).map(|(at, _)| at).collect();
            let mut quotes = Quotes::default();
            for (index, open) in opens.iter().enumerate() {
                // A type between name and value makes the next value begin before this one.
                for open in [*open, opens[index.saturating_sub(back)]] {
                    prop_assert_eq!(quotes.value(&text, open), value(&text, open), "{} at {}", text, open);
                }
            }
        }
    }
}
