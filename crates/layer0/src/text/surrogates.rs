//! Escapes of lone surrogates, which JSON's grammar allows but no text can contain.

use std::borrow::Cow;

/// Length of an escape such as `\ud83d`, and of its replacement, in bytes.
const ESCAPE_BYTES: usize = 6;

/// Returns JSON in which each lone surrogate is replaced by U+FFFD.
///
/// ```
/// use layer0::text::replace_lone_surrogates;
///
/// assert_eq!(replace_lone_surrogates(r#""order 17 \ud83d""#), r#""order 17 \ufffd""#);
/// assert_eq!(replace_lone_surrogates(r#""\ud83d\udc4d""#), r#""\ud83d\udc4d""#);
/// ```
#[must_use]
pub fn replace_lone_surrogates(json: &str) -> Cow<'_, str> {
    if !json.contains("\\u") {
        return json.into();
    }
    let mut bytes = json.as_bytes().to_vec();
    replace_lone_surrogates_in(&mut bytes, true);
    match String::from_utf8(bytes) {
        Ok(replaced) if replaced != json => replaced.into(),
        _ => json.into(),
    }
}

/// Replaces each lone surrogate by U+FFFD in place, and returns the number of processed bytes.
///
/// A chunk of JSON may end within an escape. Unless `is_end` is set, such an escape is not processed: it belongs to the
/// beginning of the next chunk.
pub fn replace_lone_surrogates_in(json: &mut [u8], is_end: bool) -> usize {
    let mut at = 0;
    while let Some(step) = json[at..].iter().position(|byte| *byte == b'\\') {
        at += step;
        let rest = &json[at..];
        at += match unit(rest) {
            Unit::Cut if is_end => rest.len().min(2),
            Unit::Cut => return at,
            // The character after the backslash does not start another escape.
            Unit::None => 2,
            Unit::Code(0xd800..=0xdbff) => match unit(&rest[ESCAPE_BYTES..]) {
                Unit::Code(0xdc00..=0xdfff) => 2 * ESCAPE_BYTES,
                Unit::Cut if !is_end => return at,
                _ => replace(json, at),
            },
            Unit::Code(0xdc00..=0xdfff) => replace(json, at),
            Unit::Code(_) => ESCAPE_BYTES,
        };
    }
    json.len()
}

fn replace(json: &mut [u8], at: usize) -> usize {
    json[at..at + ESCAPE_BYTES].copy_from_slice(b"\\ufffd");
    ESCAPE_BYTES
}

/// An escape at the start of a text.
enum Unit {
    /// A UTF-16 unit.
    Code(u16),
    /// The text ends within a possible escape.
    Cut,
    /// Something else.
    None,
}

fn unit(text: &[u8]) -> Unit {
    let begins = text.iter().zip(b"\\u").all(|(one, other)| one == other);
    let digits = text.get(2..).unwrap_or_default();
    let digits = &digits[..digits.len().min(4)];
    if !begins || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Unit::None;
    }
    let code = str::from_utf8(digits).ok().filter(|digits| digits.len() == 4);
    match code.and_then(|code| u16::from_str_radix(code, 16).ok()) {
        Some(code) => Unit::Code(code),
        None => Unit::Cut,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: P7
    #[test]
    fn half_a_surrogate_pair_is_replaced() {
        #[track_caller]
        fn check(json: &str, expected: &str) {
            assert_eq!(replace_lone_surrogates(json), expected);
            // In two chunks, split at every position.
            for cut in 0..=json.len() {
                let (mut done, mut open) = (Vec::new(), Vec::new());
                for (piece, is_end) in [(&json[..cut], false), (&json[cut..], true)] {
                    open.extend_from_slice(piece.as_bytes());
                    let count = replace_lone_surrogates_in(&mut open, is_end);
                    done.extend(open.drain(..count));
                }
                assert_eq!(String::from_utf8(done).unwrap(), expected, "cut at {cut}");
            }
        }
        check(r#""\ud83d\udc4d""#, r#""\ud83d\udc4d""#);
        check(r#""\ud83d""#, r#""\ufffd""#);
        check(r#""a\udc4db""#, r#""a\ufffdb""#);
        check(r#""\ud83d\ud83d\udc4d""#, r#""\ufffd\ud83d\udc4d""#);
        check(r#""\udc4d\uD83D""#, r#""\ufffd\ufffd""#);
        check(r#""\ud83d\n\\ud83d""#, r#""\ufffd\n\\ud83d""#);
        check(r#""\ud83d\\""#, r#""\ufffd\\""#);
        check(r#""\ud83dx\u00e9""#, r#""\ufffdx\u00e9""#);
        check(r#"\ud83"#, r#"\ud83"#);
        check(r#"\"#, r#"\"#);
        check("\"\\ud83d\n", "\"\\ufffd\n");
    }

    /// A line that was cut off by its writer is processed to its end.
    #[test]
    fn ends_of_lines_are_not_held_back() {
        for line in ["\"\\ud83d\n", "\"\\\n", "\"\\u1\n", "\"\\ud83d\\u1\n"] {
            let mut bytes = line.as_bytes().to_vec();
            assert_eq!(replace_lone_surrogates_in(&mut bytes, false), line.len(), "{line:?}");
        }
    }
}
