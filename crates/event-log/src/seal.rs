//! HMACs over data that the hashes of a record do not cover: a log's row of a run, and erasures.

use std::collections::BTreeMap;

use hmac::Mac;
use layer0::event::Hash;
use layer0::id::RunId;

use crate::LogKey;

/// A log's row of a run, with the texts of its columns.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::exhaustive_structs,
    reason = "a log fills every field, and has to learn of a new one"
)]
pub struct KeptRow<'a> {
    /// Id of the run.
    pub run: &'a str,
    /// Session of the run.
    pub session: &'a str,
    /// The run that dispatched it.
    pub parent: Option<&'a str>,
    /// The run that it was dispatched together with.
    pub branch_of: Option<&'a str>,
    /// Number of its last event.
    pub last_seq: u64,
    /// Hash of its last event.
    pub head: Hash,
    /// Summary, as JSON.
    pub summary: &'a str,
    /// Terms, as JSON.
    pub terms: Option<&'a str>,
    /// Labels, as JSON.
    pub labels: Option<&'a str>,
}

/// The result of a check of a row's HMAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a row has an HMAC that fits, another one, or none")]
pub enum RowSeal {
    /// There is no HMAC: an older version wrote the row.
    Absent,
    /// The HMAC belongs to another row.
    Broken,
    /// The HMAC is valid.
    Sound,
}

/// A log's HMACs of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunSeals {
    /// The check of the row's HMAC.
    pub row: RowSeal,
    /// HMACs of the erased events, by number.
    pub erasures: BTreeMap<u64, Hash>,
}

impl RunSeals {
    /// Creates the HMACs of a run.
    #[must_use]
    pub const fn new(row: RowSeal, erasures: BTreeMap<u64, Hash>) -> Self {
        Self { row, erasures }
    }
}

impl LogKey {
    /// Returns the HMAC of a row.
    #[must_use]
    pub fn seal_row(&self, row: &KeptRow<'_>) -> Hash {
        let numbers = [&row.last_seq.to_be_bytes()[..], &row.head.0[..]].concat();
        self.seal_parts(&[
            Some(b"backstop run row"),
            Some(row.run.as_bytes()),
            Some(row.session.as_bytes()),
            row.parent.map(str::as_bytes),
            row.branch_of.map(str::as_bytes),
            Some(&numbers),
            Some(row.summary.as_bytes()),
            row.terms.map(str::as_bytes),
            row.labels.map(str::as_bytes),
        ])
    }

    /// Checks the HMAC of a row.
    #[must_use]
    pub fn check_row(&self, row: &KeptRow<'_>, seal: Option<&[u8]>) -> RowSeal {
        match seal {
            None => RowSeal::Absent,
            Some(seal) if *seal == self.seal_row(row).0 => RowSeal::Sound,
            Some(_) => RowSeal::Broken,
        }
    }

    /// Returns the HMAC of an erasure: this event of this run lost the payload with this digest.
    #[must_use]
    pub fn seal_erasure(&self, run: &RunId, seq: u64, hash: &Hash, digest: &Hash) -> Hash {
        self.seal_parts(&[
            Some(b"backstop erasure"),
            Some(run.as_str().as_bytes()),
            Some(&seq.to_be_bytes()),
            Some(&hash.0),
            Some(&digest.0),
        ])
    }

    /// Returns the HMAC over parts. Each has a length prefix, and an absent part differs from an empty one.
    fn seal_parts(&self, parts: &[Option<&[u8]>]) -> Hash {
        let mut mac = self.mac();
        for part in parts {
            mac.update(&[u8::from(part.is_some())]);
            let part = part.unwrap_or_default();
            mac.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            mac.update(part);
        }
        Hash(mac.finalize().into_bytes().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: D1. No two rows have one HMAC.
    #[test]
    fn row_seal_covers_each_column() {
        let key = LogKey::new("a key").unwrap();
        let row = KeptRow {
            run: "r",
            session: "s",
            parent: None,
            branch_of: None,
            last_seq: 3,
            head: Hash([1; 32]),
            summary: "{}",
            terms: None,
            labels: None,
        };
        let changed = [
            row,
            KeptRow { run: "rs", session: "", ..row },
            KeptRow { parent: Some(""), ..row },
            KeptRow { branch_of: Some(""), ..row },
            KeptRow { last_seq: 2, ..row },
            KeptRow { head: Hash([2; 32]), ..row },
            KeptRow { summary: "{} ", ..row },
            KeptRow { terms: Some("{}"), ..row },
            KeptRow { labels: Some("{}"), ..row },
        ];
        let seals: Vec<Hash> = changed.iter().map(|row| key.seal_row(row)).collect();
        for (at, seal) in seals.iter().enumerate() {
            assert!(!seals[..at].contains(seal), "{:?}", changed[at]);
            let verdict = key.check_row(&row, Some(&seal.0));
            assert_eq!(verdict == RowSeal::Sound, at == 0, "{:?}", changed[at]);
        }
        assert_eq!(key.check_row(&row, None), RowSeal::Absent);
        let other = LogKey::new("another key").unwrap();
        assert_eq!(other.check_row(&row, Some(&seals[0].0)), RowSeal::Broken);
    }
}
