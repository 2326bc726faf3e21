//! Decoding of JSON from outside, as lenient as possible without guessing.

use layer0::text::replace_lone_surrogates_in;
use serde::de::DeserializeOwned;

pub(crate) const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Decodes JSON. Invalid UTF-8, and escapes of half a surrogate pair, which the grammar of JSON
/// allows, become U+FFFD.
pub(crate) fn from_slice<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    match serde_json::from_slice(json) {
        // A value decoded in two steps reports syntax errors as data errors.
        Err(error) if error.is_syntax() || error.is_data() => match repair_json(json) {
            Some(mended) => serde_json::from_slice(&mended),
            None => Err(error),
        },
        result => result,
    }
}

/// Returns JSON with invalid text replaced; `None` if there is none.
pub(crate) fn repair_json(json: &[u8]) -> Option<Vec<u8>> {
    let mut mended = String::from_utf8_lossy(json).into_owned().into_bytes();
    replace_lone_surrogates_in(&mut mended, true);
    (mended != json).then_some(mended)
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
