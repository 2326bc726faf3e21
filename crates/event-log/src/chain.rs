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
            None => Err(LogError::key_missing(id)),
        },
    }
}

#[cfg(test)]
mod tests {
    use layer0::event::{Actor, AgentRecord, RunStarted, Warning};
    use layer0::{JsonText, Timestamp};

    use super::*;
    use crate::{EventLog, MemoryLog, RunWriter, Seed, read_records};

    /// Writes the record of the golden vectors, and returns it as `trace --json` prints it.
    async fn golden(key: Option<&str>, erased: Option<u64>) -> String {
        let log = match key.and_then(LogKey::new) {
            Some(key) => Arc::new(MemoryLog::new().with_key(key)),
            None => Arc::new(MemoryLog::new()),
        };
        let run = RunId::from("run_golden");
        let mut writer = RunWriter::new(Arc::clone(&log) as Arc<dyn EventLog>, run.clone());
        let seed = Seed::new("the seed of the golden vectors");
        let agent = AgentRecord::new("golden", "d", JsonText::default());
        let mut started = RunStarted::new("Wie heißt das?", "s-1".into(), agent);
        started.run = Some(run.clone());
        started.key_id = log.key().map(|key| key.id().into());
        let at = Timestamp::from_millis(1_767_225_600_001);
        writer.stage(&seed, at, Actor::Runtime, None, started.into());
        for message in ["private", "\u{7f}\u{200d} \"quoted\"\n"] {
            let warning = Warning::new(message);
            writer.stage(&seed, at, Actor::Machine, Some(1), warning.into());
        }
        writer.commit().await.unwrap();
        drop(writer);
        if let Some(seq) = erased {
            log.erase(&run, seq).await.unwrap();
        }
        let (_, records) = read_records(&*log, &run).await.unwrap();
        records.iter().map(|record| record.envelope(&run).unwrap() + "\n").collect()
    }

    /// Spec: D13, D1
    #[tokio::test]
    async fn records_are_the_golden_vectors() {
        let key = Some("correct horse battery staple");
        for (file, expected, key, erased) in [
            ("unkeyed", include_str!("../../../docs/record-format/unkeyed.jsonl"), None, None),
            ("keyed", include_str!("../../../docs/record-format/keyed.jsonl"), key, None),
            ("erased", include_str!("../../../docs/record-format/erased.jsonl"), None, Some(2)),
        ] {
            assert_eq!(golden(key, erased).await, expected, "{file}");
        }
    }
}
