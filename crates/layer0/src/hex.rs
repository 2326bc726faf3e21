//! Hex digits of digests.

/// Appends bytes to a text as lower-case hex digits, two per byte.
///
/// ```
/// let mut key = String::from("bs_");
/// layer0::push_hex(&mut key, &[0x0f, 0xa0]);
/// assert_eq!(key, "bs_0fa0");
/// ```
pub fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.reserve(2 * bytes.len());
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from(DIGITS[usize::from(digit)]));
        }
    }
}
