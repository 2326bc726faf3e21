//! The HMACs of a keyed run: of its row, and of its erased events.

use layer0::event::{Event, EventKind};
use layer0::id::RunId;

use super::unchecked::UncheckedParts;
use crate::{LogError, LogKey, Payload, Record, RowSeal, RunSeals, RunSummary};

/// The HMACs of a keyed run.
pub(super) struct SealCheck<'a> {
    pub(super) run: &'a RunId,
    pub(super) key: &'a LogKey,
    pub(super) seals: RunSeals,
}

impl SealCheck<'_> {
    /// Checks the HMACs of the row and of the erased events, and returns the parts that have none.
    pub(super) fn check(
        &self,
        events: &[Event],
        erased: &[&Record],
        summary: &RunSummary,
    ) -> Result<UncheckedParts, LogError> {
        let mut unchecked = UncheckedParts::default();
        let is_required = are_rows_sealed(events);
        for record in erased {
            match self.is_erasure_sound(record) {
                Some(true) => {}
                // Only the first event records whether erasures have HMACs.
                None if !is_required && record.seq > 1 => unchecked.erasures.push(record.seq),
                _ => {
                    let why = "it was erased without the key";
                    return Err(LogError::tampered_event(record.seq, why));
                }
            }
        }
        // The row is sealed again when the first event is erased.
        let is_first_erased = self.seals.erasures.contains_key(&1);
        match self.seals.row {
            RowSeal::Sound => {}
            RowSeal::Absent if !is_required && !is_first_erased => unchecked.row = true,
            RowSeal::Absent | RowSeal::Broken => {
                let why = "its row was changed without the key";
                return Err(LogError::tampered_event(summary.last_seq, why));
            }
        }
        Ok(unchecked)
    }

    /// Returns whether the HMAC of an erasure is valid; `None` if there is no HMAC.
    fn is_erasure_sound(&self, record: &Record) -> Option<bool> {
        let Payload::Erased(digest) = &record.payload else { return Some(false) };
        let seal = self.seals.erasures.get(&record.seq)?;
        Some(*seal == self.key.seal_erasure(self.run, record.seq, &record.hash, digest))
    }
}

/// Returns whether the record requires HMACs of its row and its erasures.
fn are_rows_sealed(events: &[Event]) -> bool {
    match events.first().map(|event| &event.kind) {
        Some(EventKind::RunStarted(started)) => started.row_sealed,
        Some(EventKind::SubscriptionOpened(opened)) => opened.row_sealed,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use layer0::Timestamp;
    use layer0::event::{Actor, Hash, RunStarted};
    use serde_json::json;

    use super::*;

    /// Returns the first event of a keyed run, which says whether its row has an HMAC.
    fn first(row_sealed: bool) -> Event {
        let started = json!({
            "input": "x", "session": "s", "machine": 1, "key_id": "k", "row_sealed": row_sealed,
            "agent": { "name": "demo", "digest": "d", "definition": {} },
        });
        let started: RunStarted = serde_json::from_value(started).unwrap();
        Event::new("run_1", 1, Timestamp::default(), Actor::Runtime, started)
    }

    fn erased(seq: u64) -> Record {
        let payload = Payload::Erased(Hash([7; 32]));
        let mut record = Record::new(seq, Timestamp::default(), "warning", Actor::Runtime, payload);
        record.hash = Hash([1; 32]);
        record
    }

    /// Checks a run of five events. Returns the unchecked row and erasures, or the seq that was tampered with.
    fn check(
        events: &[Event],
        record: Option<&Record>,
        row: RowSeal,
        seals: &[(u64, Hash)],
    ) -> Result<(bool, Vec<u64>), u64> {
        let key = LogKey::new("a key").unwrap();
        let (run, mut summary) = (RunId::from("run_1"), RunSummary::new("run_1".into()));
        summary.last_seq = 5;
        let erasures: BTreeMap<u64, Hash> = seals.iter().copied().collect();
        let seals = SealCheck { run: &run, key: &key, seals: RunSeals::new(row, erasures) };
        match seals.check(events, &Vec::from_iter(record), &summary) {
            Ok(unchecked) => Ok((unchecked.row, unchecked.erasures)),
            Err(LogError::Tampered { seq, .. }) => Err(seq),
            Err(other) => panic!("{other:?}"),
        }
    }

    fn seal(seq: u64) -> (u64, Hash) {
        let key = LogKey::new("a key").unwrap();
        (seq, key.seal_erasure(&"run_1".into(), seq, &Hash([1; 32]), &Hash([7; 32])))
    }

    /// Spec: D1, D13
    #[test]
    fn row_needs_its_seal_if_recorded() {
        let sealed = |is_sealed, row| check(&[first(is_sealed)], None, row, &[]);
        assert_eq!(sealed(true, RowSeal::Sound), Ok((false, vec![])));
        assert_eq!(sealed(true, RowSeal::Absent), Err(5));
        assert_eq!(sealed(true, RowSeal::Broken), Err(5));
        assert_eq!(sealed(false, RowSeal::Sound), Ok((false, vec![])));
        assert_eq!(sealed(false, RowSeal::Absent), Ok((true, vec![])));
        assert_eq!(sealed(false, RowSeal::Broken), Err(5));
        let opened = json!({ "name": "n", "pattern": "p", "key_id": "k", "row_sealed": true });
        let opened = EventKind::decode("subscription.opened", &opened.to_string()).unwrap();
        let opened = Event::new("run_1", 1, Timestamp::default(), Actor::Runtime, opened);
        assert_eq!(check(&[opened], None, RowSeal::Absent, &[]), Err(5));
    }

    /// Spec: D1, D13. The row of a run is sealed again when its first event is erased.
    #[test]
    fn erasure_needs_its_seal() {
        let later = |is_sealed, seals: &[(u64, Hash)]| {
            check(&[first(is_sealed)], Some(&erased(3)), RowSeal::Sound, seals)
        };
        assert_eq!(later(true, &[seal(3)]), Ok((false, vec![])));
        assert_eq!(later(true, &[]), Err(3));
        assert_eq!(later(true, &[(3, Hash([9; 32]))]), Err(3));
        assert_eq!(later(false, &[]), Ok((false, vec![3])));
        assert_eq!(later(false, &[(3, Hash([9; 32]))]), Err(3));
        let start = |row, seals: &[(u64, Hash)]| check(&[], Some(&erased(1)), row, seals);
        assert_eq!(start(RowSeal::Sound, &[seal(1)]), Ok((false, vec![])));
        assert_eq!(start(RowSeal::Absent, &[seal(1)]), Err(5));
        assert_eq!(start(RowSeal::Sound, &[]), Err(1));
        let mut text = erased(3);
        text.payload = Payload::Plain("{}".into());
        assert_eq!(check(&[first(false)], Some(&text), RowSeal::Sound, &[seal(3)]), Err(3));
    }
}
