//! Is a whole record what was written?

use std::sync::Arc;

use layer0::event::{EventKind, Hash};
use layer0::id::RunId;
use serde::Deserialize;

use crate::record::Payload;
use crate::{LogError, LogKey, Record, RunSummary};

/// Checks a whole run against the head that is kept of it: nothing edited, removed, moved or cut off.
/// Whether the chain is keyed, and how, the run's first event says; where that was erased, the summary.
///
/// # Errors
///
/// [`LogError::Tampered`] with the first seq that cannot be trusted, [`LogError::KeyMissing`].
pub fn verify(
    records: &[Record],
    summary: &RunSummary,
    key: Option<&LogKey>,
) -> Result<(), LogError> {
    let first = records.first();
    let key_id = match first.map(|first| (Naming::of(first), first.payload.text())) {
        Some((_, None)) => summary.key_id.clone(),
        Some((naming, Some(_))) => naming.key_id,
        None => None,
    };
    let key = key_named(key_id.as_deref(), key)?;
    let is_plain = |record: &Record| matches!(record.payload, Payload::Plain(_));
    let of_first_layout = first.is_some_and(is_plain);
    let (mut previous, mut named) = (Hash::default(), None);
    for (expected, record) in (1..).zip(records) {
        if record.seq != expected {
            return Err(LogError::tampered(expected, "an event is missing"));
        }
        if is_plain(record) != of_first_layout {
            return Err(LogError::tampered(expected, "its salt is missing"));
        }
        if record.seal(&previous, key) != record.hash {
            return Err(LogError::tampered(expected, "its hash does not match"));
        }
        if let Some(run) = Naming::of(record).run {
            named = Some((expected, run));
        }
        previous = record.hash;
    }
    if previous != summary.head {
        let behind = records.last().map_or(0, |last| last.seq) + 1;
        return Err(LogError::tampered(behind, "the end is cut off"));
    }
    match named {
        Some((seq, run)) if run != summary.run => {
            Err(LogError::tampered(seq, "it names another run"))
        }
        _ => Ok(()),
    }
}

/// What a first event, or that of a copy, says of the chain. Records of the first layout do not.
#[derive(Default, Deserialize)]
struct Naming {
    run: Option<RunId>,
    key_id: Option<Arc<str>>,
}

impl Naming {
    fn of(record: &Record) -> Self {
        match (&*record.event_type, record.payload.text()) {
            // What cannot be read was changed, and its hash says so.
            ("run.started" | "run.forked", Some(text)) => {
                serde_json::from_str(text).unwrap_or_default()
            }
            _ => Self::default(),
        }
    }
}

/// Returns the id of the key that a run whose first event this is says it is sealed with.
pub(crate) fn key_id_in(first: &EventKind) -> Option<&str> {
    match first {
        EventKind::RunStarted(started) => started.key_id.as_deref(),
        _ => None,
    }
}

/// Finds the key with an id; without an id, none is wanted.
pub(crate) fn key_named<'a>(
    id: Option<&str>,
    key: Option<&'a LogKey>,
) -> Result<Option<&'a LogKey>, LogError> {
    match id {
        None => Ok(None),
        Some(id) => match key.filter(|key| key.id() == id) {
            Some(key) => Ok(Some(key)),
            None => Err(LogError::KeyMissing { key_id: id.into() }),
        },
    }
}
