//! The kept parts of transcripts.

use layer0::id::RunId;

use super::Runs;
use crate::TranscriptPart;

/// The most parts of one read.
const MAX_PARTS: usize = 1_000;

/// Returns the kept parts up to a run, newest first.
pub(super) fn read(runs: &Runs, until: &RunId) -> Vec<TranscriptPart> {
    let mut parts: Vec<TranscriptPart> = Vec::new();
    let mut next = Some(until);
    while let Some(kept) =
        next.and_then(|run| runs.by_id.get(run)).filter(|_| parts.len() < MAX_PARTS)
        && let Some(part) = kept.transcript.as_ref().filter(|part| part.head == kept.summary.head)
    {
        parts.push(part.clone());
        next = part.follows.as_ref();
    }
    parts
}

/// Keeps the parts whose runs have not changed, unless a text was erased.
pub(super) fn keep(runs: &mut Runs, parts: Vec<TranscriptPart>, erasures: u64) {
    if runs.erasures != erasures {
        return;
    }
    for part in parts {
        if let Some(kept) = runs.by_id.get_mut(&part.run)
            && kept.summary.head == part.head
        {
            kept.transcript = Some(part);
        }
    }
}
