//! JSON from outside, as leniently as JSON can be read without guessing.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

pub(crate) const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Reads JSON. Bytes that are no UTF-8, and escapes of half a surrogate pair, which the grammar of JSON
/// allows, are read as U+FFFD.
pub(crate) fn from_slice<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    match serde_json::from_slice(json) {
        // What is read in two steps reports syntax as data.
        Err(error) if error.is_syntax() || error.is_data() => match mended(json) {
            Some(mended) => serde_json::from_slice(&mended),
            None => Err(error),
        },
        result => result,
    }
}

/// Returns JSON without what is no text; `None` where there is nothing to mend.
pub(crate) fn mended(json: &[u8]) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(json);
    let mut is_mended = matches!(text, Cow::Owned(_));
    let mut rest = text.as_bytes();
    let mut mended = Vec::with_capacity(rest.len());
    while let Some(at) = memchr::memchr(b'\\', rest) {
        mended.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let taken = match (unit(rest), rest.get(6..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                mended.extend_from_slice(b"\\ufffd");
                is_mended = true;
                rest = &rest[6..];
                continue;
            }
            // The character behind it is not the start of another escape.
            _ => rest.len().min(2),
        };
        mended.extend_from_slice(&rest[..taken]);
        rest = &rest[taken..];
    }
    mended.extend_from_slice(rest);
    is_mended.then_some(mended)
}

/// Returns the UTF-16 unit that an escape at the start of this stands for.
fn unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    let digits = str::from_utf8(digits).ok().filter(|it| it.bytes().all(|b| b.is_ascii_hexdigit()));
    u16::from_str_radix(digits?, 16).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Spec: P7
    #[test]
    fn half_a_surrogate_pair_is_replaced() {
        #[track_caller]
        fn check(json: &str, expected: &str) {
            assert_eq!(from_slice::<String>(json.as_bytes()).unwrap(), expected, "{json}");
        }
        check(r#""\ud83d\udc4d""#, "👍");
        check(r#""\ud83d""#, "\u{fffd}");
        check(r#""a\udc4db""#, "a\u{fffd}b");
        check(r#""\ud83d\ud83d\udc4d""#, "\u{fffd}👍");
        check(r#""\udc4d\uD83D""#, "\u{fffd}\u{fffd}");
        check(r#""\ud83d\n\\ud83d""#, "\u{fffd}\n\\ud83d");
        check(r#""\ud83d\\""#, "\u{fffd}\\");
        check(r#""\ud83dx\u00e9""#, "\u{fffd}xé");
        let bytes = from_slice::<String>(b"\"\xff \xed\xa0\x80\"").unwrap();
        assert!(bytes.starts_with("\u{fffd} \u{fffd}"), "{bytes}");
    }

    #[test]
    fn what_is_no_json_stays_none() {
        for json in [r#""\ud83"#, r#""\ud83d"#, r#""\x""#, "\\", r#""\ud83d" x"#, "\"\\ud83d\n\""] {
            assert!(from_slice::<String>(json.as_bytes()).is_err(), "{json}");
        }
    }

    proptest::proptest! {
        /// Spec: E11
        #[test]
        fn no_escape_panics(text in r#"(\\|u|d8|3d|dc4d|"|x){0,12}"#) {
            let _ = from_slice::<Value>(format!("\"{text}\"").as_bytes());
            let _ = from_slice::<Value>(text.as_bytes());
        }
    }
}
