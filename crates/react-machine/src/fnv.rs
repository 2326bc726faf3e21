//! FNV-1a with 64 bits.

use std::hash::Hasher;
use std::io;
use std::sync::Arc;

use serde::Serialize;

/// FNV-1a with 64 bits, as in <http://www.isthe.com/chongo/tech/comp/fnv/>.
///
/// Chosen because the digest is compared, never trusted: the log's hash chain protects against tampering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv1a {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

impl io::Write for Fnv1a {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Hasher::write(self, bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Fnv1a {
    /// Adds a value's compact JSON.
    pub(crate) fn add(&mut self, value: &impl Serialize) {
        serde_json::to_writer(self, value)
            .expect("a digest takes any bytes, and what is digested has string keys");
    }

    /// Returns the hash as 16 hex digits.
    pub(crate) fn hex(self) -> Arc<str> {
        to_hex(self.0)
    }
}

/// Returns a number as 16 hex digits.
pub(crate) fn to_hex(number: u64) -> Arc<str> {
    str::from_utf8(&hex_digits(number)).expect("hex digits are ASCII").into()
}

/// Returns the sixteen hex digits of a number.
pub(crate) fn hex_digits(number: u64) -> [u8; 16] {
    let bytes = number.to_be_bytes();
    std::array::from_fn(|at| {
        let byte = bytes[at / 2];
        let half = if at.is_multiple_of(2) { byte >> 4 } else { byte & 15 };
        b"0123456789abcdef"[usize::from(half)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_fnv1a() {
        let mut digest = Fnv1a::default();
        Hasher::write(&mut digest, b"a");
        assert_eq!(&*digest.hex(), "af63dc4c8601ec8c");
    }
}
