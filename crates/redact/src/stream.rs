//! Redaction of a text that arrives in pieces.

use std::fmt;
use std::sync::Arc;

use crate::held::SecretSearch;
use crate::ranges::{REDACTED, RedactionRange, merge};
use crate::steps;

/// A redactor for a text that arrives in pieces, which finds the secrets of the process wherever
/// they are split.
///
/// Text that may begin a secret is held back until it is one, or cannot become one, or the text
/// ends. All pieces together equal the result of [`Redactor::redact_held`] for the whole text.
///
/// ```
/// let redactor = backstop_redact::Redactor::new().with_secret("plain-but-secret");
/// let mut stream = redactor.stream();
/// assert_eq!(stream.push("the key is plain-"), "the key is ");
/// assert_eq!(stream.push("but-secret, as is pl"), "[redacted], as is ");
/// assert_eq!(stream.finish(), "pl");
/// ```
///
/// [`Redactor::redact_held`]: crate::Redactor::redact_held
#[derive(Clone, Default)]
pub struct StreamRedactor {
    held: Option<Arc<SecretSearch>>,
    /// The text held back.
    pending: String,
    /// The bytes at its start that belong to a secret whose mark was already returned.
    covered: usize,
}

impl StreamRedactor {
    pub(crate) fn new(held: Option<Arc<SecretSearch>>) -> Self {
        Self { held, pending: String::new(), covered: 0 }
    }

    /// Adds a piece; returns the text that can be shown, possibly none.
    #[must_use]
    pub fn push(&mut self, piece: &str) -> String {
        let Some(held) = self.held.clone() else { return piece.to_owned() };
        self.pending.push_str(piece);
        steps::count(self.pending.len());
        let scan = held.scan(&self.pending, false);
        let cut = scan.open.unwrap_or(self.pending.len());
        self.release(scan.found, cut)
    }

    /// Ends the text; returns the text held back. The next piece begins another text.
    #[must_use]
    pub fn finish(&mut self) -> String {
        let Some(held) = self.held.clone() else { return String::new() };
        let found = held.scan(&self.pending, true).found;
        let rest = self.release(found, self.pending.len());
        self.discard();
        rest
    }

    /// Discards the text held back, for a text that is given up.
    pub fn discard(&mut self) {
        self.pending.clear();
        self.covered = 0;
    }

    /// Returns the text before `cut`.
    fn release(&mut self, found: Vec<RedactionRange>, cut: usize) -> String {
        let mut shown = String::new();
        let mut at = self.covered;
        for RedactionRange { range, quote, .. } in merge(found) {
            // A secret that begins after the cut may still become longer.
            if range.start >= cut {
                break;
            }
            // A secret that overlaps a returned mark needs no other.
            if range.start >= at {
                shown.push_str(&self.pending[at..range.start]);
                shown.extend([quote, REDACTED, quote]);
            }
            at = at.max(range.end);
        }
        if at < cut {
            shown.push_str(&self.pending[at..cut]);
            at = cut;
        }
        self.pending.drain(..cut);
        self.covered = at - cut;
        shown
    }
}

/// Prints the number of bytes held back, never the text.
impl fmt::Debug for StreamRedactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamRedactor")
            .field("held_back", &self.pending.len())
            .finish_non_exhaustive()
    }
}
