//! Parts of a text to redact.

use std::borrow::Cow;
use std::ops::Range;

/// The replacement of a secret.
pub const REDACTED: &str = "[redacted]";

/// A part of a text to redact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RedactionRange {
    pub(crate) range: Range<usize>,
    /// The quote on both sides of a mark that replaces a bare number, so that valid JSON stays valid.
    pub(crate) quote: &'static str,
}

impl RedactionRange {
    pub(crate) const fn at(range: Range<usize>) -> Self {
        Self { range, quote: "" }
    }
}

/// Sorts parts, and merges those that overlap.
pub(crate) fn merge(mut found: Vec<RedactionRange>) -> Vec<RedactionRange> {
    found.retain(|found| !found.range.is_empty());
    found.sort_by_key(|found| (found.range.start, std::cmp::Reverse(found.range.end)));
    found.dedup_by(|next, before| {
        let overlaps = next.range.start < before.range.end;
        if overlaps {
            before.range.end = before.range.end.max(next.range.end);
        }
        overlaps
    });
    found
}

/// Replaces each part by the mark.
pub(crate) fn replace<'t>(text: &'t str, found: Vec<RedactionRange>) -> Cow<'t, str> {
    let found = merge(found);
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut replaced = String::with_capacity(text.len());
    let mut at = 0;
    for RedactionRange { range, quote, .. } in found {
        replaced.push_str(&text[at..range.start]);
        replaced.extend([quote, REDACTED, quote]);
        at = range.end;
    }
    replaced.push_str(&text[at..]);
    Cow::Owned(replaced)
}
