use std::collections::HashMap;

use layer0::id::RunId;

use crate::TranscriptPart;

/// Maximum number of parts of one read.
const MAX_PARTS: usize = 1_000;

/// The kept parts of transcripts, by run.
#[derive(Debug, Default)]
pub(super) struct TranscriptTable(HashMap<RunId, TranscriptPart>);

impl TranscriptTable {
    /// Returns the kept parts up to a run, newest first, until one is missing or out of date.
    pub(super) fn read(
        &self,
        until: &RunId,
        is_current: impl Fn(&TranscriptPart) -> bool,
    ) -> Vec<TranscriptPart> {
        let mut parts: Vec<TranscriptPart> = Vec::new();
        let mut next = Some(until);
        while let Some(part) = next.and_then(|run| self.0.get(run))
            && parts.len() < MAX_PARTS
            && is_current(part)
        {
            parts.push(part.clone());
            next = part.follows.as_ref();
        }
        parts
    }

    /// Keeps the part of a run in place of an older one.
    pub(super) fn keep(&mut self, part: TranscriptPart) {
        self.0.insert(part.run.clone(), part);
    }

    /// Removes the part of a run.
    pub(super) fn remove(&mut self, run: &RunId) {
        self.0.remove(run);
    }
}
