//! An event as it is stored: its payload as text, sealed by a hash.

use std::borrow::Cow;

use layer0::Timestamp;
use layer0::event::{Actor, Event, EventKind, Hash, SCHEMA};
use layer0::id::RunId;
use sha2::{Digest, Sha256};

use crate::LogError;

/// One row of a log. The payload is kept as the text that was hashed, never re-serialised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its place in the run: 1, 2, ….
    pub seq: u64,
    /// When it was recorded.
    pub at: Timestamp,
    /// Its type, such as `tool.responded`.
    pub event_type: Cow<'static, str>,
    /// Who it comes from.
    pub actor: Actor,
    /// The seq of the event that led to it.
    pub caused_by: Option<u64>,
    /// The schema of its payload.
    pub schema: u32,
    /// Its payload as JSON.
    pub data: String,
    /// SHA-256 over the hash before and everything above.
    pub hash: Hash,
}

impl Record {
    /// Returns what `hash` must be, given the hash of the record before (zero for the first).
    #[must_use]
    pub fn seal(&self, previous: &Hash) -> Hash {
        // Every part has a fixed width or its length in front, so that no two records feed the
        // same bytes.
        let mut hasher = Sha256::new();
        hasher.update(previous.0);
        hasher.update(self.seq.to_be_bytes());
        hasher.update(self.at.as_millis().to_be_bytes());
        hasher.update([u8::from(self.caused_by.is_some())]);
        hasher.update(self.caused_by.unwrap_or(0).to_be_bytes());
        hasher.update(self.schema.to_be_bytes());
        for text in [&self.event_type, self.actor.as_str(), &self.data] {
            hasher.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
            hasher.update(text.as_bytes());
        }
        Hash(hasher.finalize().into())
    }

    /// Turns the record into an event of `run`.
    ///
    /// # Errors
    ///
    /// [`LogError::SchemaNewer`], [`LogError::Unreadable`] for a type or a payload that is none.
    pub fn decode(&self, run: &RunId) -> Result<Event, LogError> {
        if self.schema > SCHEMA {
            return Err(LogError::schema_newer(self.schema, SCHEMA));
        }
        let kind = EventKind::decode(&self.event_type, &self.data)
            .map_err(|error| LogError::unreadable(self.seq, error))?;
        Ok(Event {
            run: run.clone(),
            seq: self.seq,
            at: self.at,
            actor: self.actor,
            caused_by: self.caused_by,
            schema: self.schema,
            kind,
            hash: self.hash,
        })
    }
}

/// Checks a whole run against its head: nothing edited, removed, moved or cut off.
///
/// # Errors
///
/// [`LogError::Tampered`] with the first seq that cannot be trusted.
pub fn verify(records: &[Record], head: &Hash) -> Result<(), LogError> {
    let mut previous = Hash::default();
    let mut expected = 1;
    for record in records {
        if record.seq != expected {
            return Err(LogError::tampered(expected, "an event is missing"));
        }
        if record.seal(&previous) != record.hash {
            return Err(LogError::tampered(record.seq, "its hash does not match"));
        }
        previous = record.hash;
        expected += 1;
    }
    if previous != *head {
        return Err(LogError::tampered(expected, "the end is cut off"));
    }
    Ok(())
}
