//! Checks of the size of files, and of the docs of crates.

use crate::tidy::finding::Finding;
use crate::tidy::syntax::test_parts;
use crate::tidy::workspace::SourceFile;

/// Above this many lines a file should be split.
const LONG: usize = 400;

/// Above this many lines a file must be split.
const TOO_LONG: usize = 600;

/// Checks a file's size, without its tests, and that a crate begins with its docs.
pub(crate) fn check(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let name = file.path.rsplit('/').next().unwrap_or(&file.path);
    if name == "lib.rs" && !file.text.starts_with("//!") {
        findings.push(Finding::error(&file.path, 1, "a crate begins with its docs: `//! …`"));
    }
    if is_test_file(&file.path) {
        let lines = file.text.lines().count();
        if lines > TOO_LONG {
            let what = format!("{lines} lines, of at most {TOO_LONG}");
            findings.push(Finding::error(&file.path, 1, what));
        }
    } else {
        let lines = code_lines(file);
        let what = format!("{lines} lines without tests, of at most");
        if lines > TOO_LONG {
            findings.push(Finding::error(&file.path, 1, format!("{what} {TOO_LONG}")));
        } else if lines > LONG {
            findings.push(Finding::warning(&file.path, 1, format!("{what} {LONG}")));
        }
    }
    findings
}

/// Returns whether a file is compiled only for tests or benches.
fn is_test_file(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "benches" | "tests" | "tests.rs"))
}

/// Counts the lines of a file outside its tests.
fn code_lines(file: &SourceFile) -> usize {
    let tests = test_parts(&file.syntax);
    let is_code = |line: &usize| !tests.iter().any(|part| part.contains(line));
    (1..=file.text.lines().count()).filter(is_code).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(path: &str, text: &str) -> Vec<String> {
        let file = SourceFile::new(path.to_owned(), text.to_owned()).unwrap();
        check(&file).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn long_file_counts_without_its_tests() {
        let path = "crates/a/src/b.rs";
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// test\n".repeat(900));
        let code = |lines| "// code\n".repeat(lines);
        assert_eq!(said(path, &(code(400) + &tests)), [""; 0]);
        assert_eq!(
            said(path, &(code(401) + &tests)),
            ["crates/a/src/b.rs:1: warning: 401 lines without tests, of at most 400"]
        );
        assert_eq!(
            said(path, &(code(601) + &tests)),
            ["crates/a/src/b.rs:1: 601 lines without tests, of at most 600"]
        );
        assert_eq!(said("crates/a/tests/b.rs", &code(600)), [""; 0]);
        assert_eq!(
            said("crates/a/tests/b.rs", &code(601)),
            ["crates/a/tests/b.rs:1: 601 lines, of at most 600"]
        );
    }

    #[test]
    fn a_crate_without_docs_is_found() {
        assert_eq!(
            said("crates/a/src/lib.rs", "pub mod b;\n"),
            ["crates/a/src/lib.rs:1: a crate begins with its docs: `//! …`"]
        );
        assert_eq!(said("crates/a/src/lib.rs", "//! Does a thing.\n"), [""; 0]);
    }
}
