//! Colours and other control sequences of a terminal (ECMA-48). They are left out of a text that is
//! shown or summarised, which joins the text around them.

use std::ops::Range;

use crate::steps;

/// The most bytes of source, folds and invisible sequences together, that may be left out between
/// two bytes. A longer run is not a folded line, and a stream would hold back everything before it.
/// Summaries leave out no more either.
pub(crate) const MAX_HIDDEN: usize = 256;

/// A longer sequence counts as text, because so much is never left out between two bytes.
const MAX_SEQUENCE: usize = MAX_HIDDEN;

/// The meaning of an escape.
pub(crate) enum Escape {
    /// This character, encoded in this many bytes of source.
    Char(char, usize),
    /// This byte, encoded in this many bytes of source.
    Byte(u8, usize),
    /// The end of a line, encoded in this many bytes of source.
    Line(usize),
    /// An invisible sequence, such as a colour, of this many bytes of source.
    Unseen(usize),
    /// No escape: the byte is literal.
    None,
    /// An escape that the end of the source cuts off.
    Cut,
}

/// Reads the control sequence at the start of a text.
pub(crate) fn sequence(text: &[u8]) -> Escape {
    let head = &text[..text.len().min(MAX_SEQUENCE)];
    let length = match head {
        [0x1b] => None,
        [0x1b, b'[', ..] | [0xc2, 0x9b, ..] => parameters(head),
        [0x1b, b']' | b'P' | b'X' | b'^' | b'_', ..] => string(head),
        [0x1b, b' '..=b'/', ..] => last(head, 2, |byte| !matches!(byte, b' '..=b'/')),
        [0x1b, 0..=0x7f, ..] => Some(2),
        _ => return Escape::None,
    };
    steps::count(length.unwrap_or(head.len()));
    match length {
        Some(length) => Escape::Unseen(length),
        None if text.len() < MAX_SEQUENCE => Escape::Cut,
        None => Escape::None,
    }
}

/// Returns the length of a control sequence; another one that begins with the single character ends
/// it early.
fn parameters(head: &[u8]) -> Option<usize> {
    let is_last = |byte: u8| matches!(byte, 0x40..=0x7e);
    let next = head[2..].windows(2).position(|two| is_last(two[0]) || two == [0xc2, 0x9b]);
    match next.map(|next| next + 2) {
        Some(next) if head[next] == 0xc2 => Some(next),
        _ => last(head, 2, is_last),
    }
}

/// Returns the length of a sequence up to its last byte.
fn last(head: &[u8], from: usize, is_last: impl Fn(u8) -> bool) -> Option<usize> {
    let length = from + head[from..].iter().position(|byte| is_last(*byte))? + 1;
    // No character is cut in half.
    let rest = head[length..].iter().take_while(|byte| matches!(byte, 0x80..=0xbf)).count();
    Some(length + rest)
}

/// Returns the length of a control string, which ends with BEL, ST or `ESC \\`. Any other `ESC`
/// ends it early and begins the next sequence.
fn string(head: &[u8]) -> Option<usize> {
    let at = (2..head.len()).find(|at| matches!(head[*at..], [7 | 0x1b, ..] | [0xc2, 0x9c, ..]))?;
    match head[at..] {
        [7, ..] => Some(at + 1),
        [0x1b] => None,
        [0x1b, other, ..] if other != b'\\' => Some(at),
        _ => Some(at + 2),
    }
}

/// A text without control sequences of a terminal.
pub(crate) struct Plain {
    pub(crate) text: String,
    /// The starts of pieces, in the text and in its source.
    pieces: Vec<(usize, usize)>,
}

impl Plain {
    /// Removes colours from a text; `None` without any.
    pub(crate) fn without_colours(source: &str) -> Option<Self> {
        if !source.contains(['\u{1b}', '\u{9b}']) {
            return None;
        }
        let mut plain = Self { text: String::with_capacity(source.len()), pieces: vec![(0, 0)] };
        let (mut begin, mut at) = (0, 0);
        while let Some(next) = source[at..].find(['\u{1b}', '\u{9b}']) {
            at += next;
            match sequence(&source.as_bytes()[at..]) {
                Escape::Unseen(length) => {
                    plain.text.push_str(&source[begin..at]);
                    at += length;
                    begin = at;
                    plain.pieces.push((plain.text.len(), at));
                }
                _ => at += source[at..].chars().next().map_or(1, char::len_utf8),
            }
        }
        plain.text.push_str(&source[begin..]);
        Some(plain)
    }

    /// Returns the range of the source for a range of the text.
    pub(crate) fn to_source(&self, range: &Range<usize>) -> Range<usize> {
        let place = |at: usize| {
            let after = self.pieces.partition_point(|(out, _)| *out <= at);
            let (out, source) = self.pieces[after.saturating_sub(1)];
            source + (at - out)
        };
        match range.is_empty() {
            true => place(range.start)..place(range.start),
            false => place(range.start)..place(range.end - 1) + 1,
        }
    }
}
