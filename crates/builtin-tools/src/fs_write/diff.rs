//! The change of a file, as shown to a person.

use std::time::Duration;

use similar::TextDiff;

/// Maximum size of compared contents, in bytes.
const MAX_COMPARED_BYTES: usize = 4 * 1024 * 1024;
/// Time limit of the search for the shortest diff; a longer diff is also correct.
const MAX_SEARCH: Duration = Duration::from_millis(500);
/// Number of unchanged lines around a change.
const CONTEXT_LINES: usize = 3;

/// Returns a unified diff, or a sentence if the contents cannot be compared.
pub(super) fn format_diff(path: &str, old: Option<&[u8]>, new: &str) -> String {
    let from = match old {
        None => "/dev/null".to_owned(),
        Some(_) => path.to_owned(),
    };
    let old = old.unwrap_or_default();
    let is_long = old.len().max(new.len()) > MAX_COMPARED_BYTES;
    let text = match std::str::from_utf8(old) {
        Ok(text) if !is_long && !text.contains('\0') => text,
        _ => {
            let (was, is) = (old.len(), new.len());
            let why = if is_long { "too long to compare" } else { "no text" };
            return format!("{was} bytes, which are {why}, become {is} bytes\n");
        }
    };
    if text == new && from == path {
        return "no change\n".to_owned();
    }
    if new.is_empty() && text.is_empty() {
        return format!("--- {from}\n+++ {path}\nan empty file\n");
    }
    let diff = TextDiff::configure().timeout(MAX_SEARCH).diff_lines(text, new);
    diff.unified_diff().context_radius(CONTEXT_LINES).header(&from, path).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: N4
    #[test]
    fn a_diff_says_all_that_changes() {
        #[track_caller]
        fn check(old: Option<&[u8]>, new: &str, expected: &str) {
            assert_eq!(format_diff("a.txt", old, new), expected);
        }
        check(
            Some(b"1\n2\n3\n4\n5\n6\n"),
            "1\n2\n3\n4\nfive\n6\n",
            "--- a.txt\n+++ a.txt\n@@ -2,5 +2,5 @@\n 2\n 3\n 4\n-5\n+five\n 6\n",
        );
        check(None, "one\n", "--- /dev/null\n+++ a.txt\n@@ -0,0 +1 @@\n+one\n");
        let no_end = "\n\\ No newline at end of file\n";
        let expected = format!("--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-one\n+one{no_end}");
        check(Some(b"one\n"), "one", &expected);
        check(Some(b"x\r\n"), "x\n", "--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-x\r\n+x\n");
        check(Some(b"one"), "one", "no change\n");
        check(None, "", "--- /dev/null\n+++ a.txt\nan empty file\n");
        check(Some(b"\xff\xfe"), "one", "2 bytes, which are no text, become 3 bytes\n");
        check(Some(b"a\0b"), "", "3 bytes, which are no text, become 0 bytes\n");
        let long = "x".repeat(MAX_COMPARED_BYTES + 1);
        let expected =
            format!("0 bytes, which are too long to compare, become {} bytes\n", long.len());
        check(Some(b""), &long, &expected);
    }

    #[test]
    fn a_hard_comparison_ends_in_time() {
        let lines = |salt: usize| -> String {
            (0..40_000).map(|line| format!("{}\n", (line * 7_919 + salt) % 50_021)).collect()
        };
        let (old, new) = (lines(1), lines(20_011));
        let diff = format_diff("a", Some(old.as_bytes()), &new);
        let kept = |sign: char| diff.lines().skip(2).filter(|line| line.starts_with(sign)).count();
        assert_eq!(kept('+'), kept('-'), "as many lines are there as before");
    }
}
