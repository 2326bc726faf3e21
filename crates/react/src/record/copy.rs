//! Carrying records from store to store.

use backstop_event_log::{LogError, Record, Verified, read_records, readable_sessions, verify_run};
use layer0::event::{Event, EventKind};
use layer0::id::RunId;

use super::source::{Source, copy_stored};
use super::target::{RecordPart, Rest, compare};

/// The result of copying a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyOutcome {
    /// The run was copied: this many events are new in the other log.
    Done(u64),
    /// All events of the run were already there; it may have been reopened there since.
    Known,
    /// The run has not ended: it would continue in only one of the two stores.
    Open,
}

/// Copies the record of an ended run to another log, byte for byte, with its stored errors and results. The record and
/// its row are verified first; hashes, salts and key are kept, and an erased event with a sound HMAC has one in the
/// copy too. If a part of the record is already there, because the run was reopened after it had been copied, the rest
/// is appended.
///
/// # Errors
///
/// [`LogError::NotFound`] when there is no such run; [`LogError::Tampered`] when its record does not verify;
/// [`LogError::Conflict`] when another record of its name is there, or its session goes on differently there; any other
/// when a store fails.
///
/// # Cancel safety
///
/// If the future is dropped, the run was copied whole or not at all; ask again.
pub async fn copy_run(from: &Source, to: &Source, run: &RunId) -> Result<CopyOutcome, LogError> {
    let verified = verify_run(&*from.log, run).await?;
    let (summary, records) = read_records(&*from.log, run).await?;
    if summary.is_open() {
        return Ok(CopyOutcome::Open);
    }
    let events = decode_events(&records, run)?;
    let there = to.log.summary(run).await?;
    let part = match &there {
        Some(there) => compare(&*to.log, there, &summary, &records).await?,
        None => RecordPart::First(0),
    };
    // Its stored texts may be missing from the last copy.
    copy_all(from, to, &events).await?;
    match part {
        RecordPart::First(last) => {
            let rest = Rest { summary: &summary, records, last };
            let copied = rest.append(&*to.log, sealed_erasures(verified)).await;
            copied.map(CopyOutcome::Done)
        }
        RecordPart::Whole => Ok(CopyOutcome::Known),
    }
}

/// Returns the erased events that carry a sound HMAC, by seq.
fn sealed_erasures(verified: Verified) -> Vec<u64> {
    let Verified { mut erased, unchecked, .. } = verified;
    erased.retain(|seq| !unchecked.erasures.contains(seq));
    erased
}

/// Returns the events that were not erased.
fn decode_events(records: &[Record], run: &RunId) -> Result<Vec<Event>, LogError> {
    let events = records.iter().filter_map(|record| match record.decode(run) {
        Err(LogError::Erased { .. }) => None,
        event => Some(event),
    });
    events.collect()
}

async fn copy_all(from: &Source, to: &Source, events: &[Event]) -> Result<(), LogError> {
    let sessions = readable_sessions(events);
    for event in events {
        if matches!(event.kind, EventKind::ErrorStored(_) | EventKind::ResultStored(_)) {
            copy_stored(&from.stores(), &to.stores(), event, &sessions).await?;
        }
    }
    Ok(())
}
