use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// How many of the skipped paths are named for each reason.
const NAMED: usize = 5;

/// Why something was not looked at, or not at all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    Binary,
    Hidden,
    Ignored,
    Installed,
    Link,
    LongLine,
    NoFile,
    Unreadable,
}

impl Reason {
    fn text(self) -> &'static str {
        match self {
            Self::Binary => "binary: not searched, or only the beginning, as there is a NUL byte",
            Self::Hidden => "hidden",
            Self::Ignored => "named by an ignore file",
            Self::Installed => "installed packages",
            Self::Link => "a link; name it as `path` to search where it leads",
            Self::LongLine => "searched up to a line of more than 16 MiB",
            Self::NoFile => "neither a file nor a folder",
            Self::Unreadable => "cannot be read",
        }
    }
}

/// What was not looked at.
#[derive(Debug, Default)]
pub(crate) struct Skipped(BTreeMap<Reason, (usize, Vec<PathBuf>)>);

impl Skipped {
    pub(crate) fn add(&mut self, reason: Reason, path: &Path) {
        let (count, named) = self.0.entry(reason).or_default();
        *count += 1;
        if named.len() < NAMED {
            named.push(path.to_owned());
        }
    }

    /// Takes what another found, for other reasons than these.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.0.append(&mut other.0);
    }

    /// Returns a row for each reason; `None` where nothing was skipped.
    pub(crate) fn rows(&self, shown: impl Fn(&Path) -> String) -> Option<Value> {
        let rows = self.0.iter().map(|(reason, (count, named))| {
            let named: Vec<_> = named.iter().map(|path| shown(path)).collect();
            json!({"why": reason.text(), "count": count, "first": named})
        });
        let rows: Vec<_> = rows.collect();
        (!rows.is_empty()).then(|| rows.into())
    }
}
