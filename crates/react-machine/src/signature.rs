//! Signatures by which tool calls are equal.

use std::hash::Hasher;
use std::sync::Arc;

use layer0::JsonText;

use crate::fnv::{Fnv1a, hex_digits};

/// Maximum depth that is compared: all deeper values count as equal; the root is at depth 0.
const MAX_DEPTH: usize = 16;
/// Replacement of a value below [`MAX_DEPTH`].
const TOO_DEEP: &[u8] = b"\"...\"";

/// Returns the signature of a call: its name, `:` and 16 hex digits of FNV-1a 64 over its canonical arguments.
///
/// The canonical form is compact JSON with unescaped UTF-8, object keys sorted at every depth, array order kept,
/// numbers as they were written, and `"..."` for values below depth 16.
pub fn call_signature(name: &str, arguments: &JsonText) -> String {
    let mut digest = Fnv1a::default();
    write_canonical(&mut digest, arguments);
    let mut signature = String::with_capacity(name.len() + 17);
    for c in name.chars() {
        // Separators and escape characters in a name are escaped.
        if matches!(c, '|' | '\\') {
            signature.push('\\');
        }
        signature.push(c);
    }
    signature.push(':');
    signature.extend(hex_digits(digest.finish()).map(char::from));
    signature
}

/// As [`call_signature`], as shared text.
pub(crate) fn shared_signature(name: &str, arguments: &JsonText) -> Arc<str> {
    const MAX: usize = 128;
    let length = name.len() + 17;
    if length > MAX || name.contains(['|', '\\']) {
        return call_signature(name, arguments).into();
    }
    // Most names are short, and need no intermediate string.
    let mut digest = Fnv1a::default();
    write_canonical(&mut digest, arguments);
    let mut signature = [b':'; MAX];
    signature[..name.len()].copy_from_slice(name.as_bytes());
    signature[name.len() + 1..length].copy_from_slice(&hex_digits(digest.finish()));
    str::from_utf8(&signature[..length]).expect("a name, a colon and hex digits are text").into()
}

/// Returns the signature of a batch: its calls' signatures, sorted and joined by `|`.
pub(crate) fn batch_signature<'c>(
    mut calls: impl ExactSizeIterator<Item = &'c Arc<str>>,
) -> Arc<str> {
    if calls.len() == 1 {
        return calls.next().cloned().unwrap_or_default();
    }
    let mut sorted: Vec<&str> = calls.map(|call| &**call).collect();
    sorted.sort_unstable();
    sorted.join("|").into()
}

/// Writes a value in canonical form. Its text is already compact and sorted.
pub(crate) fn write_canonical(digest: &mut Fnv1a, value: &JsonText) {
    write_value(digest, value.get().as_bytes(), 0);
}

/// Writes the value at the start of a text; returns the text after it.
fn write_value<'t>(digest: &mut Fnv1a, text: &'t [u8], depth: usize) -> &'t [u8] {
    let (value, behind) = text.split_at(end_of_value(text));
    let is_object = match value.first() {
        _ if depth > MAX_DEPTH => {
            Hasher::write(digest, TOO_DEEP);
            return behind;
        }
        // The whole value is within the maximum depth.
        _ if depth == 0 && deepest(value) <= MAX_DEPTH => {
            Hasher::write(digest, value);
            return behind;
        }
        Some(b'{') => true,
        Some(b'[') => false,
        _ => {
            Hasher::write(digest, value);
            return behind;
        }
    };
    let (open, mut rest) = value.split_at(1);
    Hasher::write(digest, open);
    while let [first, tail @ ..] = rest {
        match first {
            b',' | b']' | b'}' => {
                Hasher::write(digest, &[*first]);
                rest = tail;
                continue;
            }
            _ if is_object => {
                let key_and_colon = (end_of_value(rest) + 1).min(rest.len());
                let (key, value) = rest.split_at(key_and_colon);
                Hasher::write(digest, key);
                rest = value;
            }
            _ => {}
        }
        rest = write_value(digest, rest, depth + 1);
    }
    behind
}

/// Returns the end of the value at the start of a text.
fn end_of_value(text: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => at = end_of_string(text, at),
            b'{' | b'[' => depth += 1,
            b',' | b':' | b'}' | b']' if depth == 0 => return at,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 && matches!(byte, b'"' | b'}' | b']') {
            return at;
        }
    }
    text.len()
}

/// Returns the number of brackets around the deepest value.
fn deepest(text: &[u8]) -> usize {
    let (mut depth, mut deepest, mut at) = (0_usize, 0, 0);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => at = end_of_string(text, at),
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    deepest
}

/// Returns the position of the closing quote of a string that begins at `start`.
fn end_of_string(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Spec: G2
    #[test]
    fn the_vectors_of_the_specification_hold() {
        #[track_caller]
        fn check(text: &str, hex: &str) {
            let arguments = JsonText::parse(text).unwrap();
            assert_eq!(call_signature("f", &arguments), format!("f:{hex}"), "{text}");
        }
        check("{}", "08f44b07b5901a25");
        check(r#"{"b":2,"a":1}"#, "a0ebc03bdc71de7b");
        check(r#"{"v":1}"#, "9d243d6e1e08f168");
        check(r#"{"v":1.0}"#, "91c6e35526b5156a");
    }

    /// Spec: G2
    #[test]
    fn key_order_does_not_matter() {
        let nested = |depth: usize, leaf: Value| {
            JsonText::from((0..depth).fold(leaf, |inner, _| json!([inner, "]"])))
        };
        assert_eq!(
            call_signature("f", &nested(17, json!(1))),
            call_signature("f", &nested(17, json!({"x": 2})))
        );
        assert_ne!(
            call_signature("f", &nested(16, json!(1))),
            call_signature("f", &nested(16, json!(2)))
        );
        let (one, two) = (r#"{"a":{"x":1,"y":2}}"#, r#"{"a":{"y":2,"x":1}}"#);
        let signature = |text| call_signature("f", &JsonText::parse(text).unwrap());
        assert_eq!(signature(one), signature(two));
    }

    /// Spec: G2
    #[test]
    fn what_is_too_deep_is_written_as_dots() {
        fn by_tree(digest: &mut Fnv1a, value: &Value, depth: usize) {
            match value {
                _ if depth > MAX_DEPTH => Hasher::write(digest, TOO_DEEP),
                Value::Array(items) => {
                    Hasher::write(digest, b"[");
                    for (index, item) in items.iter().enumerate() {
                        Hasher::write(digest, if index > 0 { b"," } else { b"" });
                        by_tree(digest, item, depth + 1);
                    }
                    Hasher::write(digest, b"]");
                }
                Value::Object(fields) => {
                    Hasher::write(digest, b"{");
                    for (index, (key, value)) in fields.iter().enumerate() {
                        Hasher::write(digest, if index > 0 { b"," } else { b"" });
                        digest.add(key);
                        Hasher::write(digest, b":");
                        by_tree(digest, value, depth + 1);
                    }
                    Hasher::write(digest, b"}");
                }
                scalar => digest.add(scalar),
            }
        }
        for depth in 0..20 {
            let value = (0..depth).fold(json!({}), |inner, level| {
                json!({"a]\"}": [1, inner, {}, [], "\\", ""], "b": level, "c": [[], {"d": null}]})
            });
            let (mut tree, mut text) = (Fnv1a::default(), Fnv1a::default());
            by_tree(&mut tree, &value, 0);
            write_canonical(&mut text, &JsonText::from(&value));
            assert_eq!(tree.finish(), text.finish(), "{depth}");
        }
    }

    /// Spec: G2
    #[test]
    fn a_shared_signature_is_the_same_text() {
        let arguments = JsonText::parse(r#"{"a":1}"#).unwrap();
        for name in ["f", "", "a|b", "a\\b", "größe", &"n".repeat(111), &"n".repeat(112)] {
            assert_eq!(*shared_signature(name, &arguments), *call_signature(name, &arguments));
        }
    }

    /// Spec: G2
    #[test]
    fn numbers_count_as_they_were_written() {
        let signature = |text| call_signature("f", &JsonText::parse(text).unwrap());
        assert_ne!(signature("[3.10]"), signature("[3.1]"));
        assert_eq!(signature("[3.10]"), signature("[ 3.10 ]"));
    }

    /// Spec: G2
    #[test]
    fn batch_signature_ignores_order_and_keeps_counts() {
        let call = |name: &str| Arc::from(call_signature(name, &JsonText::from(json!({}))));
        let one = batch_signature([call("a"), call("b")].iter());
        assert_eq!(one, batch_signature([call("b"), call("a")].iter()));
        assert_eq!(&*one, "a:08f44b07b5901a25|b:08f44b07b5901a25");
        assert_ne!(one, batch_signature([call("a"), call("b"), call("b")].iter()));
        assert_ne!(batch_signature([call("a|b")].iter()), batch_signature([call("a\\|b")].iter()));
    }
}
