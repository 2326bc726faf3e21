//! Names under which the model calls tools.

use layer0::push_hex;
use sha2::{Digest, Sha256};

/// Maximum length of a name that every provider accepts, in characters.
const MAX_CHARS: usize = 64;
/// Size of the digest at the end of a mapped name, in bytes.
const TAIL_BYTES: usize = 4;

/// Returns `server__tool`, of letters, digits, `_` and `-`, at most 64; `None` if a tool has no name.
///
/// If the mapping is lossy, a digest of the tool's own name is appended, so that the name does not depend on the other
/// tools.
pub(crate) fn model_name(server: &str, tool: &str) -> Option<String> {
    if tool.trim().is_empty() {
        return None;
    }
    let is_taken = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let whole = format!("{server}__{tool}");
    if whole.len() <= MAX_CHARS && whole.chars().all(is_taken) {
        return Some(whole);
    }
    let mapped = whole.chars().map(|c| if is_taken(c) { c } else { '_' });
    let mut name: String = mapped.take(MAX_CHARS - 1 - 2 * TAIL_BYTES).collect();
    name.push('_');
    push_hex(&mut name, &Sha256::digest(tool.as_bytes())[..TAIL_BYTES]);
    Some(name)
}

#[cfg(test)]
mod tests {
    use layer0::name::{check_name, wire_name};

    use super::*;

    /// Spec: Q1
    #[test]
    fn names_are_what_every_provider_takes() {
        for (tool, name) in [
            ("read_file", "files__read_file"),
            ("read.file", "files__read_file_dd32cdf5"),
            ("read file", "files__read_file_1214148e"),
            ("lesen-\u{fc}", "files__lesen-__63136352"),
            ("\u{8aad}\u{3080}", "files_____818417a1"),
        ] {
            let mapped = model_name("files", tool).unwrap();
            assert_eq!(mapped, name, "{tool}");
            assert_eq!(wire_name(&mapped), mapped);
            check_name(&mapped).unwrap();
        }
        let long = |end: &str| model_name("files", &format!("{}{end}", "x".repeat(80))).unwrap();
        assert_eq!(long("a").len(), 64);
        assert_ne!(long("a"), long("b"));
        assert_eq!(model_name("files", " "), None);
    }
}
