//! Findings of the checks.

use std::fmt;

/// A violation of a rule, with its place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The file, relative to the workspace.
    pub(crate) path: String,
    /// The line, from 1.
    pub(crate) line: usize,
    pub(crate) severity: Severity,
    pub(crate) what: String,
}

/// Whether a finding fails the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    Error,
    Warning,
}

impl Finding {
    pub(crate) fn error(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, severity: Severity::Error, what: what.into() }
    }

    pub(crate) fn warning(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, severity: Severity::Warning, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.severity {
            Severity::Error => "",
            Severity::Warning => "warning: ",
        };
        write!(f, "{}:{}: {prefix}{}", self.path, self.line, self.what)
    }
}

/// Returns the first line, from 1, that sets `key` in a manifest, or 1.
pub(crate) fn line_of_key(manifest: &str, key: &str) -> usize {
    let sets_key =
        |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.starts_with([' ', '=', '.']));
    manifest.lines().position(sets_key).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_path_line_what() {
        assert_eq!(Finding::error("a.rs", 3, "bad").to_string(), "a.rs:3: bad");
        assert_eq!(Finding::warning("a.rs", 3, "long").to_string(), "a.rs:3: warning: long");
    }

    #[test]
    fn a_key_is_found_whole() {
        let manifest = "[dependencies]\nserde_json.workspace = true\nserde = \"1\"\n";
        for (key, line) in [("serde", 3), ("serde_json", 2), ("absent", 1)] {
            assert_eq!(line_of_key(manifest, key), line, "{key}");
        }
    }
}
