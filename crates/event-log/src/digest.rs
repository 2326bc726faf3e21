use layer0::push_hex;
use sha2::{Digest, Sha256};

/// Returns the SHA-256 (FIPS 180-4) of a text, as records have digests: 64 lower-case hex digits.
///
/// ```
/// let digest = backstop_event_log::text_digest("hello");
/// assert!(digest.starts_with("2cf24dba"));
/// ```
#[must_use]
pub fn text_digest(text: &str) -> String {
    let mut digits = String::with_capacity(64);
    push_hex(&mut digits, &Sha256::digest(text));
    digits
}
