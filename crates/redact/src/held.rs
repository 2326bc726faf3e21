//! Search for the secrets of a process in each layer of a text.

use std::ops::Range;

use crate::escapes::is_blank;
use crate::forms::Forms;
use crate::layer::{Layer, MAX_LAYERS};
use crate::ranges::RedactionRange;

/// The shortest secrets that are searched for; shorter ones would match by accident.
pub const MIN_SECRET_CHARS: usize = 8;

/// Returns whether a secret is searched for.
pub(crate) fn is_searched(secret: &str) -> bool {
    secret.trim().chars().count() >= MIN_SECRET_CHARS
}

/// The search for every form of the held secrets.
#[derive(Debug)]
pub(crate) struct SecretSearch(Forms);

/// The result of a search in a text that may continue.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) found: Vec<RedactionRange>,
    /// The start of a form that may be incomplete.
    pub(crate) open: Option<usize>,
}

impl SecretSearch {
    /// Prepares the search; `None` without secrets.
    pub(crate) fn new(secrets: &[String]) -> Option<Self> {
        Forms::new(secrets).map(Self)
    }

    /// Finds every form of every secret; `ends` is whether the text is complete.
    pub(crate) fn scan(&self, text: &str, ends: bool) -> Scan {
        let mut scan = Scan::default();
        let mut layers: Vec<Layer> = Vec::new();
        loop {
            let bytes = layers.last().map_or(text.as_bytes(), |layer| &layer.bytes);
            let next = match layers.len() {
                MAX_LAYERS => None,
                _ => Layer::decode(bytes, ends),
            };
            let in_text = |mut range: Range<usize>| {
                // A match in the text itself may cut an escape in half.
                if let (Some(next), true) = (&next, layers.is_empty()) {
                    range = next.widen(range);
                }
                layers.iter().rev().fold(range, |range, layer| layer.to_source(&range))
            };
            scan.found
                .extend(self.0.matches(bytes).map(|range| RedactionRange::at(in_text(range))));
            if !ends {
                let tail = next.as_ref().and_then(|next| next.tail);
                if let Some(mut at) = [self.open(bytes), tail].into_iter().flatten().min() {
                    if let (Some(next), true) = (&next, layers.is_empty()) {
                        at = next.widen(at..at).start;
                    }
                    let at = layers.iter().rev().fold(at, |at, layer| layer.source_at(at));
                    scan.open = Some(scan.open.map_or(at, |open| open.min(at)));
                }
            }
            match next {
                Some(next) => layers.push(next),
                None => return scan,
            }
        }
    }

    /// Returns the start of a form that continues past the end, with and without the blanks at the
    /// end, which may turn out to be part of a fold.
    fn open(&self, bytes: &[u8]) -> Option<usize> {
        let blanks = bytes.iter().rev().take_while(|byte| is_blank(**byte)).count();
        let open = self.0.open_at_end(bytes);
        match blanks {
            0 => open,
            _ => [open, self.0.open_at_end(&bytes[..bytes.len() - blanks])]
                .into_iter()
                .flatten()
                .min(),
        }
    }
}
