//! What makes two tool calls the same.

use std::fmt::Write as _;
use std::hash::Hasher;

use serde_json::Value;

use crate::digest::Fnv1a;

/// Values below this depth all look the same; the root is at depth 0.
const MAX_DEPTH: usize = 16;
/// What stands for a value below [`MAX_DEPTH`].
const TOO_DEEP: &[u8] = b"\"...\"";

/// Returns the signature of a call: its name, `:` and 16 hex digits of FNV-1a 64 over its canonical
/// arguments.
///
/// Canonical is compact JSON with unescaped UTF-8, object keys sorted at every depth, array order
/// kept, and `"..."` for what is below depth 16.
pub fn call_signature(name: &str, arguments: &Value) -> String {
    let mut digest = Fnv1a::default();
    write_canonical(&mut digest, arguments, 0);
    let mut signature = String::with_capacity(name.len() + 17);
    for c in name.chars() {
        // The signs that join and escape must not appear in a name as themselves.
        if matches!(c, '|' | '\\') {
            signature.push('\\');
        }
        signature.push(c);
    }
    let _ = write!(signature, ":{:016x}", digest.finish());
    signature
}

/// Returns the signature of a batch: its calls' signatures, sorted and joined by `|`.
pub(crate) fn batch_signature(calls: &[String]) -> String {
    let mut sorted: Vec<&str> = calls.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    sorted.join("|")
}

/// Writes a value in canonical form. Sorts by itself, because a feature of serde_json that any
/// dependency may turn on keeps keys in the order they came.
pub(crate) fn write_canonical(digest: &mut Fnv1a, value: &Value, depth: usize) {
    if depth > MAX_DEPTH {
        return Hasher::write(digest, TOO_DEEP);
    }
    match value {
        Value::Array(items) => {
            Hasher::write(digest, b"[");
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    Hasher::write(digest, b",");
                }
                write_canonical(digest, item, depth + 1);
            }
            Hasher::write(digest, b"]");
        }
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_unstable_by_key(|(key, _)| *key);
            Hasher::write(digest, b"{");
            for (index, (key, value)) in fields.into_iter().enumerate() {
                if index > 0 {
                    Hasher::write(digest, b",");
                }
                digest.add(key);
                Hasher::write(digest, b":");
                write_canonical(digest, value, depth + 1);
            }
            Hasher::write(digest, b"}");
        }
        scalar => {
            digest.add(scalar);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Spec: G2
    #[test]
    fn the_vectors_of_the_specification_hold() {
        #[track_caller]
        fn check(text: &str, hex: &str) {
            let arguments = serde_json::from_str(text).unwrap();
            assert_eq!(call_signature("f", &arguments), format!("f:{hex}"), "{text}");
        }
        check("{}", "08f44b07b5901a25");
        check(r#"{"b":2,"a":1}"#, "a0ebc03bdc71de7b");
        check(r#"{"v":1}"#, "9d243d6e1e08f168");
        check(r#"{"v":1.0}"#, "91c6e35526b5156a");
    }

    /// Spec: G2
    #[test]
    fn key_order_does_not_matter_and_depth_is_bounded() {
        let nested = |depth: usize, leaf: Value| (0..depth).fold(leaf, |inner, _| json!([inner]));
        assert_eq!(
            call_signature("f", &nested(17, json!(1))),
            call_signature("f", &nested(17, json!({"x": 2})))
        );
        assert_ne!(
            call_signature("f", &nested(16, json!(1))),
            call_signature("f", &nested(16, json!(2)))
        );
        let (one, two) = (r#"{"a":{"x":1,"y":2}}"#, r#"{"a":{"y":2,"x":1}}"#);
        let signature = |text| call_signature("f", &serde_json::from_str(text).unwrap());
        assert_eq!(signature(one), signature(two));
    }

    /// Spec: G2
    #[test]
    fn a_number_that_was_logged_and_read_again_is_the_same_call() {
        let asked: Value = serde_json::from_str("0.17486140258652586790").unwrap();
        let logged = serde_json::from_str(&asked.to_string()).unwrap();
        assert_eq!(call_signature("f", &asked), call_signature("f", &logged));
    }

    /// Spec: G2
    #[test]
    fn a_batch_is_the_same_in_any_order_but_not_in_any_number() {
        let call = |name: &str| call_signature(name, &json!({}));
        let one = batch_signature(&[call("a"), call("b")]);
        assert_eq!(one, batch_signature(&[call("b"), call("a")]));
        assert_eq!(one, "a:08f44b07b5901a25|b:08f44b07b5901a25");
        assert_ne!(one, batch_signature(&[call("a"), call("b"), call("b")]));
        assert_ne!(batch_signature(&[call("a|b")]), batch_signature(&[call("a\\|b")]));
    }
}
