//! Secrets that are never recorded: the seed of a run's salts, and the key of a log.

use std::fmt;
use std::sync::Arc;

use hmac::digest::Output;
use hmac::{Hmac, KeyInit, Mac};
use layer0::event::Salt;
use sha2::Sha256;

/// The message whose HMAC under the key is the key's id.
const KEY_ID: &str = "backstop log key";

/// The secret from which the salts of a run's events are derived. It is drawn whenever a process claims a run, and is
/// in no record: a reader who knew it could guess erased text.
#[derive(Clone)]
pub struct Seed(Arc<Hmac<Sha256>>);

impl Seed {
    /// Creates a seed from random text.
    #[must_use]
    pub fn new(drawn: &str) -> Self {
        Self(Arc::new(new_hmac(drawn.as_bytes())))
    }

    /// Returns the salt of an event: the first 16 bytes of HMAC-SHA256(seed, seq), seq as 8 bytes, most
    /// significant first.
    #[must_use]
    pub fn salt(&self, seq: u64) -> Salt {
        let mac = compute_mac(&self.0, &seq.to_be_bytes());
        Salt(std::array::from_fn(|at| mac[at]))
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// The key of a log. New runs are sealed with HMAC-SHA256, so that only those who have the key can forge a record.
///
/// ```
/// use backstop_event_log::LogKey;
///
/// let key = LogKey::new("correct horse battery staple").ok_or("the key is empty")?;
/// assert_eq!(key.id().len(), 16);
/// assert!(LogKey::new("").is_none());
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone)]
pub struct LogKey {
    mac: Arc<Hmac<Sha256>>,
    id: Arc<str>,
}

impl LogKey {
    /// Creates a key from random bytes; `None` if there are none.
    pub fn new(key: impl AsRef<[u8]>) -> Option<Self> {
        let key = key.as_ref();
        if key.is_empty() {
            return None;
        }
        let mac = new_hmac(key);
        let id = compute_mac(&mac, KEY_ID.as_bytes());
        let id: String = id.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Some(Self { mac: Arc::new(mac), id: id.into() })
    }

    /// Returns the id of the key in records: 16 hex digits, the first bytes of an HMAC-SHA256 under the key.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn mac(&self) -> Hmac<Sha256> {
        (*self.mac).clone()
    }
}

impl fmt::Debug for LogKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogKey").field("id", &self.id).finish_non_exhaustive()
    }
}

fn new_hmac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

fn compute_mac(keyed: &Hmac<Sha256>, text: &[u8]) -> Output<Sha256> {
    keyed.clone().chain_update(text).finalize().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: D1. Neither stands anywhere.
    #[test]
    fn secrets_are_not_printed() {
        let key = LogKey::new("do not print this").unwrap();
        let printed = format!("{key:?} {:?}", Seed::new("nor this"));
        assert!(!printed.contains("print this") && !printed.contains("nor this"), "{printed}");
    }

    /// Spec: D1
    #[test]
    fn a_salt_is_of_its_seed_and_seq() {
        let salts = [Seed::new("a").salt(1), Seed::new("a").salt(2), Seed::new("b").salt(1)];
        assert_eq!(salts[0], Seed::new("a").salt(1));
        assert!(salts[0] != salts[1] && salts[0] != salts[2]);
    }
}
