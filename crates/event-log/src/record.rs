//! An event as stored: its payload as text, sealed by a hash.

use std::borrow::Cow;

use hmac::Mac;
use layer0::Timestamp;
use layer0::event::{Actor, Event, EventKind, Hash, SCHEMA, Salt};
use layer0::id::RunId;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::digest::Update;
use sha2::{Digest, Sha256};

use crate::{LogError, LogKey, escape_json};

/// One row of a log. The payload is the text that was written, never serialised again. Logs that store JSON may store
/// its serde form; [`Record::envelope`] is the format for readers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// Number in the run: 1, 2, ….
    pub seq: u64,
    /// Time at which it was recorded.
    pub at: Timestamp,
    /// Type, such as `tool.responded`.
    pub event_type: Cow<'static, str>,
    /// Origin of the event.
    pub actor: Actor,
    /// Number of the event that caused it.
    pub caused_by: Option<u64>,
    /// Schema version of the payload.
    pub schema: u32,
    /// Payload.
    pub payload: Payload,
    /// Hash over the previous hash and all fields above.
    pub hash: Hash,
}

/// The payload of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    /// The payload was erased on request. The SHA-256 of salt and text is left, so that the chain can still be
    /// verified.
    Erased(Hash),
    /// JSON in a record of the first layout, which has no salts. It cannot be erased.
    Plain(String),
    /// JSON, with the salt that is hashed before it.
    Salted(Salt, String),
}

impl Payload {
    /// Returns the JSON; `None` if it was erased.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Erased(_) => None,
            Self::Plain(text) | Self::Salted(_, text) => Some(text),
        }
    }

    /// Returns the salt, if there is one.
    #[must_use]
    pub const fn salt(&self) -> Option<Salt> {
        match self {
            Self::Erased(_) | Self::Plain(_) => None,
            Self::Salted(salt, _) => Some(*salt),
        }
    }

    /// Returns the digest that the chain covers, which is left when the payload is erased; `None` in the first layout,
    /// where the chain covers the text itself.
    #[must_use]
    pub fn digest(&self) -> Option<Hash> {
        match self {
            Self::Erased(digest) => Some(*digest),
            Self::Plain(_) => None,
            Self::Salted(salt, text) => {
                let digest = Digest::chain_update(Sha256::new(), salt.0);
                let digest = Digest::chain_update(digest, escape_json(text).as_bytes());
                Some(Hash(digest.finalize().into()))
            }
        }
    }
}

impl Record {
    /// Creates a record with the current schema and no cause. Its hash is not set yet: [`Record::seal`] computes it.
    #[must_use]
    pub fn new(
        seq: u64,
        at: Timestamp,
        event_type: impl Into<Cow<'static, str>>,
        actor: Actor,
        payload: Payload,
    ) -> Self {
        let (event_type, hash) = (event_type.into(), Hash::default());
        Self { seq, at, event_type, actor, caused_by: None, schema: SCHEMA, payload, hash }
    }

    /// Returns the correct value of `hash`, given the hash of the previous record (zero for the first): SHA-256, or
    /// with a key HMAC-SHA256, over the fields that `docs/record-format.md` lists. A record of the first layout is
    /// never sealed with a key.
    #[must_use]
    pub fn seal(&self, previous: &Hash, key: Option<&LogKey>) -> Hash {
        match key.filter(|_| !matches!(self.payload, Payload::Plain(_))) {
            Some(key) => Hash(self.put(key.mac(), previous).finalize().into_bytes().into()),
            None => Hash(self.put(Sha256::new(), previous).finalize().into()),
        }
    }

    /// Hashes the sealed fields. Every part has a fixed width or a length prefix, so that no two records are sealed
    /// over the same bytes.
    fn put<H: Update>(&self, mut hash: H, previous: &Hash) -> H {
        hash.update(&previous.0);
        hash.update(&self.seq.to_be_bytes());
        hash.update(&self.at.as_millis().to_be_bytes());
        hash.update(&[u8::from(self.caused_by.is_some())]);
        hash.update(&self.caused_by.unwrap_or(0).to_be_bytes());
        hash.update(&self.schema.to_be_bytes());
        let mut put = |text: &str| {
            let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
            hash.update(&length.to_be_bytes());
            hash.update(text.as_bytes());
        };
        put(&self.event_type);
        put(self.actor.as_str());
        match &self.payload {
            Payload::Plain(text) => put(text),
            payload => hash.update(&payload.digest().unwrap_or_default().0),
        }
        hash
    }

    /// Decodes the record as an event of `run`.
    ///
    /// # Errors
    ///
    /// [`LogError::SchemaNewer`], [`LogError::Erased`], and [`LogError::Unreadable`] for an invalid type or payload.
    pub fn decode(&self, run: &RunId) -> Result<Event, LogError> {
        if self.schema > SCHEMA {
            return Err(LogError::schema_newer(self.schema, SCHEMA));
        }
        let text = self.payload.text().ok_or(LogError::erased_event(self.seq))?;
        let kind = EventKind::decode(&self.event_type, text)
            .map_err(|error| LogError::unreadable(self.seq, error))?;
        let mut event = Event::new(run.clone(), self.seq, self.at, self.actor, kind);
        (event.caused_by, event.schema) = (self.caused_by, self.schema);
        (event.salt, event.hash) = (self.payload.salt(), self.hash);
        Ok(event)
    }

    /// Returns the record as JSON with the fields of an [`Event`]. The payload has the form that was hashed, with
    /// [`escape_json`]; for an erased payload, `data` is `{"erased": digest}`.
    ///
    /// # Errors
    ///
    /// The error of [`serde_json`] if the payload is not JSON.
    pub fn envelope(&self, run: &RunId) -> Result<String, serde_json::Error> {
        #[derive(Serialize)]
        struct RecordEnvelope<'a> {
            run: &'a RunId,
            seq: u64,
            at: Timestamp,
            #[serde(rename = "type")]
            event_type: &'a str,
            actor: Actor,
            caused_by: Option<u64>,
            schema: u32,
            data: RecordData<'a>,
            salt: Option<Salt>,
            hash: Hash,
        }
        #[derive(Serialize)]
        #[serde(untagged)]
        enum RecordData<'a> {
            Erased { erased: Hash },
            Text(&'a RawValue),
        }
        let text = self.payload.text().map(escape_json);
        let data = match (&self.payload, &text) {
            (_, Some(text)) => RecordData::Text(serde_json::from_str(text)?),
            (payload, None) => RecordData::Erased { erased: payload.digest().unwrap_or_default() },
        };
        serde_json::to_string(&RecordEnvelope {
            run,
            seq: self.seq,
            at: self.at,
            event_type: &self.event_type,
            actor: self.actor,
            caused_by: self.caused_by,
            schema: self.schema,
            data,
            salt: self.payload.salt(),
            hash: self.hash,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_from_json() {
        let text = || "{\"text\": \"\\u0000 \u{e4}\"}".to_owned();
        let salted = Payload::Salted(Salt([7; 16]), text());
        for payload in [salted, Payload::Plain(text()), Payload::Erased(Hash([9; 32]))] {
            let at = Timestamp::from_millis(3);
            let mut record = Record::new(2, at, "warning", Actor::Runtime, payload);
            record.caused_by = Some(1);
            record.hash = record.seal(&Hash::default(), None);
            let json = serde_json::to_string(&record).unwrap();
            assert_eq!(serde_json::from_str::<Record>(&json).unwrap(), record, "{json}");
        }
    }
}
