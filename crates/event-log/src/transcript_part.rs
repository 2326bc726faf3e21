//! The parts of session transcripts that a log keeps in addition to its records.

use std::sync::Arc;

use hmac::Mac;
use layer0::event::Hash;
use layer0::id::RunId;
use sha2::{Digest, Sha256};

use crate::LogKey;

/// The part of a session's transcript that one run adds. It is derived from the record of the run, which a later run of
/// the session then need not read again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TranscriptPart {
    /// The run.
    pub run: RunId,
    /// The hash of the last event that the part is derived from.
    pub head: Hash,
    /// The run before it in the transcript.
    pub follows: Option<RunId>,
    /// The messages, in the format of the agent's crate.
    pub text: Arc<str>,
    /// HMAC-SHA256 of the rest under the key of the log, or SHA-256 without one.
    pub digest: Hash,
}

impl TranscriptPart {
    /// Makes the part of a run, for a log with this key.
    pub fn new(
        run: RunId,
        head: Hash,
        follows: Option<RunId>,
        text: impl Into<Arc<str>>,
        key: Option<&LogKey>,
    ) -> Self {
        let mut part = Self { run, head, follows, text: text.into(), digest: Hash([0; 32]) };
        part.digest = part.compute_digest(key);
        part
    }

    /// Makes the part that a log has stored; [`is_sound`](Self::is_sound) returns whether it is unchanged.
    pub fn from_stored(
        run: RunId,
        head: Hash,
        follows: Option<RunId>,
        text: impl Into<Arc<str>>,
        digest: Hash,
    ) -> Self {
        Self { run, head, follows, text: text.into(), digest }
    }

    /// Returns whether the part is as it was made, under this key of the log.
    #[must_use]
    pub fn is_sound(&self, key: Option<&LogKey>) -> bool {
        self.digest == self.compute_digest(key)
    }

    fn compute_digest(&self, key: Option<&LogKey>) -> Hash {
        let mut encoded = Vec::with_capacity(self.text.len() + 128);
        let fields = [
            Some(&b"backstop transcript part"[..]),
            Some(self.run.as_str().as_bytes()),
            Some(&self.head.0),
            self.follows.as_ref().map(|run| run.as_str().as_bytes()),
            Some(self.text.as_bytes()),
        ];
        for field in fields {
            encoded.push(u8::from(field.is_some()));
            let field = field.unwrap_or_default();
            encoded.extend(u64::try_from(field.len()).unwrap_or(u64::MAX).to_be_bytes());
            encoded.extend(field);
        }
        match key {
            Some(key) => Hash(key.mac().chain_update(encoded).finalize().into_bytes().into()),
            None => Hash(Sha256::digest(encoded).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: M7
    #[test]
    fn digest_covers_each_field() {
        let key = LogKey::new("a key");
        for key in [None, key.as_ref()] {
            let part = TranscriptPart::new("r".into(), Hash([1; 32]), Some("q".into()), "[]", key);
            assert!(part.is_sound(key));
            for change in [
                |part: &mut TranscriptPart| part.run = "rq".into(),
                |part: &mut TranscriptPart| part.head = Hash([2; 32]),
                |part: &mut TranscriptPart| part.follows = None,
                |part: &mut TranscriptPart| part.follows = Some("".into()),
                |part: &mut TranscriptPart| part.text = "[ ]".into(),
            ] {
                let mut changed = part.clone();
                change(&mut changed);
                assert!(!changed.is_sound(key), "{changed:?}");
            }
            assert!(!part.is_sound(LogKey::new("another key").as_ref()));
        }
    }
}
