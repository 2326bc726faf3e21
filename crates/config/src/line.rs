//! Line numbers of a text.

use std::ops::Range;

/// Returns the line of a place in a text, counted from 1.
pub(crate) fn line_number(text: &str, span: &Range<usize>) -> usize {
    let before = text.get(..span.start).unwrap_or(text);
    before.bytes().filter(|byte| *byte == b'\n').count() + 1
}
