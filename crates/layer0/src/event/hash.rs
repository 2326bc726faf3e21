//! The links of the hash chain, and their salts.

use std::borrow::Cow;
use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A link of the hash chain: 32 bytes, formatted as 64 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::exhaustive_structs, reason = "it is its bytes")]
pub struct Hash(pub [u8; 32]);

/// The bytes that are hashed before a payload: 16 bytes, formatted as 32 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "it is its bytes")]
pub struct Salt(pub [u8; 16]);

macro_rules! hex_bytes {
    ($name:ident $bytes:literal $wrong:literal) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = Cow::<'de, str>::deserialize(deserializer)?;
                let mut bytes = [0; $bytes];
                let digits = text.as_bytes();
                if digits.len() != 2 * bytes.len() {
                    return Err(Error::custom($wrong));
                }
                for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
                    *byte = str::from_utf8(pair)
                        .ok()
                        .and_then(|pair| u8::from_str_radix(pair, 16).ok())
                        .ok_or_else(|| Error::custom($wrong))?;
                }
                Ok(Self(bytes))
            }
        }
    };
}

hex_bytes!(Hash 32 "a hash has 64 hex digits");
hex_bytes!(Salt 16 "a salt has 32 hex digits");
