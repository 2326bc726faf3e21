//! The signature of a webhook request, as [Standard Webhooks](https://www.standardwebhooks.com) defines it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use layer0::Timestamp;
use sha2::Sha256;

/// Prefix of a key in Base64.
pub(crate) const SIGNING_KEY_PREFIX: &str = "whsec_";

/// A key that signs requests.
pub(super) struct SigningKey(Hmac<Sha256>);

impl SigningKey {
    /// Parses a key: Base64 after `whsec_`, or else the bytes of the text. Returns `None` if the key is empty or
    /// invalid Base64.
    pub(super) fn new(text: &str) -> Option<Self> {
        let bytes = match text.strip_prefix(SIGNING_KEY_PREFIX) {
            Some(encoded) => STANDARD.decode(encoded).ok()?,
            None => text.as_bytes().to_vec(),
        };
        // HMAC accepts a key of any length; an empty one is a mistake.
        let key = Some(bytes).filter(|bytes| !bytes.is_empty())?;
        Hmac::new_from_slice(&key).ok().map(Self)
    }

    /// Returns the headers of a request with this id and body, sent at `now`.
    pub(super) fn headers(
        &self,
        id: &str,
        body: &str,
        now: Timestamp,
    ) -> [(&'static str, String); 3] {
        let seconds = now.as_millis().div_euclid(1_000).to_string();
        let mut mac = self.0.clone();
        for part in [id, ".", &seconds, ".", body] {
            mac.update(part.as_bytes());
        }
        let signature = STANDARD.encode(mac.finalize().into_bytes());
        [
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", seconds),
            ("webhook-signature", format!("v1,{signature}")),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification, version 1.0.
    #[test]
    fn published_example_is_signed_alike() {
        let key = SigningKey::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let now = Timestamp::from_millis(1_614_265_330_999);
        let body = "{\"test\": 2432232314}";
        let headers = key.headers("msg_p5jXN8AQM9LWM0D4loKWxJek", body, now);
        assert_eq!(headers[1].1, "1614265330");
        assert_eq!(headers[2].1, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn keys_that_are_none_are_refused() {
        assert!(["", "whsec_", "whsec_%"].iter().all(|text| SigningKey::new(text).is_none()));
        assert!(SigningKey::new("plain").is_some());
    }
}
