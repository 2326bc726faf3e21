//! Finds the secrets a process holds, layer by layer of a text.

use std::ops::Range;

use crate::byte_lists;
use crate::context::{Context, JsonContext};
use crate::escapes::is_blank;
use crate::forms::Forms;
use crate::layer::{Layer, MAX_LAYERS};
use crate::ranges::Found;

/// What is searched for.
#[derive(Debug)]
pub(crate) struct Held(Forms);

/// What was found in a text that may go on.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) found: Vec<Found>,
    /// Where a form may begin whose end is still to come.
    pub(crate) open: Option<usize>,
    /// What stands before it.
    pub(crate) context: Context,
}

impl Scan {
    /// Keeps what shows that a part goes, as long as the part itself is kept.
    fn keep_rows(&mut self) {
        while let Some(open) = self.open {
            let cut = |found: &&Found| found.kept_from < open && found.range.start >= open;
            let Some(found) = self.found.iter().find(cut) else { return };
            self.open = Some(found.kept_from);
        }
    }
}

impl Held {
    /// Prepares the search; `None` where there is nothing to search for.
    pub(crate) fn new(secrets: &[String]) -> Option<Self> {
        Forms::new(secrets).map(Self)
    }

    /// Finds every form of every secret. `context` is what stood before the text; `ends` says that
    /// nothing follows it.
    pub(crate) fn scan(&self, text: &str, context: Context, ends: bool) -> Scan {
        let mut scan = Scan { context, ..Scan::default() };
        let mut layers: Vec<Layer> = Vec::new();
        loop {
            let next = match layers.last() {
                None => Layer::of(text.as_bytes(), ends),
                Some(layer) if layers.len() < MAX_LAYERS => Layer::of(&layer.bytes, ends),
                Some(_) => None,
            };
            let bytes = layers.last().map_or(text.as_bytes(), |layer| &layer.bytes);
            let lists =
                byte_lists::scan(&self.0, bytes, context.is_within_word(layers.len()), ends);
            let in_text = |mut range: Range<usize>| {
                // What stands in the text as it is may cut an escape in half.
                if let (Some(next), true) = (&next, layers.is_empty()) {
                    range = next.widened(range);
                }
                layers.iter().rev().fold(range, |range, layer| layer.source_of(&range))
            };
            scan.found.extend(self.0.matches(bytes).map(|range| Found::at(in_text(range))));
            let listed = lists.found.into_iter().map(|spelled| {
                let row = in_text(spelled.kept_from..spelled.kept_from + 1);
                Found { kept_from: row.start, ..Found::at(in_text(spelled.range)) }
            });
            scan.found.extend(values(text, context.json, listed.collect()));
            if !ends {
                let tail = next.as_ref().and_then(|next| next.tail);
                let open = [self.open(bytes), lists.open, tail].into_iter().flatten().min();
                if let Some(mut at) = open {
                    if let (Some(next), true) = (&next, layers.is_empty()) {
                        at = next.widened(at..at).start;
                    }
                    for layer in layers.iter().rev() {
                        at = layer.source_at(at);
                    }
                    scan.open = Some(scan.open.map_or(at, |open| open.min(at)));
                }
            }
            match next {
                Some(next) => layers.push(next),
                None => {
                    // At its end, nothing asks what stood before.
                    if !ends {
                        scan.keep_rows();
                        let cut = scan.open.unwrap_or(text.len());
                        scan.context.advance(text, &layers, cut);
                    }
                    return scan;
                }
            }
        }
    }

    /// Returns where a form begins that goes on behind the end, with and without the blanks at the
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

/// Quotes lists of numbers where they are values of JSON.
fn values(text: &str, mut context: JsonContext, mut lists: Vec<Found>) -> Vec<Found> {
    lists.sort_by_key(|found| found.range.start);
    let mut at = 0;
    for Found { range, quote, .. } in &mut lists {
        context.advance(&text.as_bytes()[at..range.start]);
        at = range.start;
        let mut behind = context;
        behind.advance(&text.as_bytes()[range.clone()]);
        if context.is_outside_strings() && behind.is_outside_strings() {
            *quote = "\"";
        }
    }
    lists
}
