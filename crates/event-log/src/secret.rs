//! What is hashed and never recorded: the seed of a run's salts, and the key of a log.

use std::fmt;
use std::sync::Arc;

use hmac::digest::Output;
use hmac::{Hmac, KeyInit, Mac};
use layer0::event::Salt;
use sha2::Sha256;

/// What the id of a key is made of, beside the key.
const KEY_ID: &str = "backstop log key";

/// What the salts of a run's events are made of. It is drawn anew each time that a process takes a
/// run, and stands in no record: a reader who knew it could guess what was erased.
#[derive(Clone)]
pub struct Seed(Arc<Hmac<Sha256>>);

impl Seed {
    /// Makes the seed of a text that was drawn at random.
    #[must_use]
    pub fn new(drawn: &str) -> Self {
        Self(Arc::new(keyed(drawn.as_bytes())))
    }

    /// Returns the salt of an event: the first 16 bytes of HMAC-SHA256(seed, seq), seq as 8 bytes, most
    /// significant first.
    #[must_use]
    pub fn salt(&self, seq: u64) -> Salt {
        let mac = mac_of(&self.0, &seq.to_be_bytes());
        let mut salt = [0; 16];
        salt.iter_mut().zip(mac).for_each(|(byte, of_mac)| *byte = of_mac);
        Salt(salt)
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// The key of a log. Runs that begin under it are sealed with HMAC-SHA256, so that only those who have
/// it can write a record anew.
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
    /// Makes a key of bytes that were drawn at random; `None` of none.
    pub fn new(key: impl AsRef<[u8]>) -> Option<Self> {
        let key = key.as_ref();
        if key.is_empty() {
            return None;
        }
        let mac = keyed(key);
        let id = mac_of(&mac, KEY_ID.as_bytes());
        let id: String = id.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Some(Self { mac: Arc::new(mac), id: id.into() })
    }

    /// Returns how records name the key: 16 hex digits, the beginning of an HMAC-SHA256 under it.
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

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

fn mac_of(keyed: &Hmac<Sha256>, text: &[u8]) -> Output<Sha256> {
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
