//! Verification of a whole record against its hash chain.

use std::sync::Arc;

use layer0::event::{EventKind, Hash};
use layer0::id::RunId;
use serde::Deserialize;

use crate::record::Payload;
use crate::{LogError, LogKey, Record, RunSummary};

/// Checks a whole run against the head in its summary: no event was edited, removed, moved or cut off.
///
/// The run's first event defines whether the chain is keyed, and with which key; if that event was erased, the summary
/// does.
///
/// # Errors
///
/// [`LogError::Tampered`] with the first seq that cannot be trusted, [`LogError::KeyMissing`].
pub fn verify(
    records: &[Record],
    summary: &RunSummary,
    key: Option<&LogKey>,
) -> Result<(), LogError> {
    let mut verifier = Verifier::new(summary, key);
    records.iter().try_for_each(|record| verifier.take(record))?;
    verifier.finish(summary)
}

/// Checks a run event by event, as the events are read; [`verify`] checks a run whose events are all in memory.
///
/// ```
/// use backstop_event_log::{EventLog, LogError, Verifier};
/// use layer0::id::RunId;
///
/// async fn check(log: &dyn EventLog, run: &RunId) -> Result<(), LogError> {
///     let missing = || LogError::NotFound(run.clone());
///     let summary = log.summary(run).await?.ok_or_else(missing)?;
///     let mut verifier = Verifier::new(&summary, log.key());
///     for record in log.records(run, 1).await? {
///         verifier.take(&record)?;
///     }
///     verifier.finish(&summary)
/// }
/// ```
#[derive(Debug)]
pub struct Verifier<'key> {
    /// Id of the key according to the summary.
    key_id: Option<Arc<str>>,
    /// The given key; after the first event, the key that this event names.
    key: Option<&'key LogKey>,
    of_first_layout: bool,
    last: u64,
    previous: Hash,
    /// The run that an event names, with the event's number.
    named: Option<(u64, RunId)>,
}

impl<'key> Verifier<'key> {
    /// Creates a verifier before the first event of a run; any summary of the run will do.
    #[must_use]
    pub fn new(summary: &RunSummary, key: Option<&'key LogKey>) -> Self {
        Self {
            key_id: summary.key_id.clone(),
            key,
            of_first_layout: false,
            last: 0,
            previous: Hash::default(),
            named: None,
        }
    }

    /// Checks the next event.
    ///
    /// # Errors
    ///
    /// [`LogError::Tampered`] if it is not the event that was written, [`LogError::KeyMissing`].
    pub fn take(&mut self, record: &Record) -> Result<(), LogError> {
        let expected = self.last + 1;
        let is_plain = matches!(record.payload, Payload::Plain(_));
        let naming = Naming::from_record(record);
        if self.last == 0 {
            let key_id = match record.payload.text() {
                Some(_) => &naming.key_id,
                None => &self.key_id,
            };
            self.key = key_named(key_id.as_deref(), self.key)?;
            self.of_first_layout = is_plain;
        }
        if record.seq != expected {
            return Err(LogError::tampered_event(expected, "an event is missing"));
        }
        if is_plain != self.of_first_layout {
            return Err(LogError::tampered_event(expected, "its salt is missing"));
        }
        if record.seal(&self.previous, self.key) != record.hash {
            return Err(LogError::tampered_event(expected, "its hash does not match"));
        }
        if naming.is_lost {
            self.named = None;
        } else if let Some(run) = naming.run {
            self.named = Some((expected, run));
        }
        (self.last, self.previous) = (expected, record.hash);
        Ok(())
    }

    /// Checks the events against the head of the run.
    ///
    /// # Errors
    ///
    /// [`LogError::Tampered`] if events are missing or belong to another run.
    pub fn finish(&self, summary: &RunSummary) -> Result<(), LogError> {
        if self.previous != summary.head {
            return Err(LogError::tampered_event(self.last + 1, "the end is cut off"));
        }
        match &self.named {
            Some((seq, run)) if *run != summary.run => {
                Err(LogError::tampered_event(*seq, "it names another run"))
            }
            _ => Ok(()),
        }
    }
}

/// Information about the chain in a first event, or in that of a copy. Records of the first layout have none.
#[derive(Default, Deserialize)]
struct Naming {
    run: Option<RunId>,
    key_id: Option<Arc<str>>,
    /// Whether the event names a copy and was erased: an earlier name is that of the original.
    #[serde(skip)]
    is_lost: bool,
}

impl Naming {
    fn from_record(record: &Record) -> Self {
        match (&*record.event_type, record.payload.text()) {
            // A payload that cannot be read was changed, which its hash shows.
            ("run.started" | "run.forked" | "subscription.opened", Some(text)) => {
                serde_json::from_str(text).unwrap_or_default()
            }
            ("run.forked", None) => Self { is_lost: true, ..Self::default() },
            _ => Self::default(),
        }
    }
}

/// Returns the id of the key that seals a run, from its first event.
pub(crate) fn key_id_in(first: &EventKind) -> Option<&str> {
    match first {
        EventKind::RunStarted(started) => started.key_id.as_deref(),
        EventKind::SubscriptionOpened(opened) => opened.key_id.as_deref(),
        _ => None,
    }
}

/// Returns the key with an id; `None` without an id.
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
    use crate::{Erasures, EventLog, MemoryLog, RunWriter, Seals, Seed, read_records};

    /// Writes the record of the golden vectors, and returns it in the format of `trace --json`.
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
