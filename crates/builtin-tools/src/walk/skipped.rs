use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Maximum number of listed paths for each reason.
const NAMED: usize = 5;

/// The reason that something was skipped, in whole or in part.
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

/// The skipped paths by reason.
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

    /// Moves the paths of another one, whose reasons have to be different.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.0.append(&mut other.0);
    }

    /// Returns a row for each reason; `None` if nothing was skipped.
    pub(crate) fn rows(&self, shown: impl Fn(&Path) -> String) -> Option<Value> {
        let rows = self.0.iter().map(|(reason, (count, named))| {
            let named: Vec<_> = named.iter().map(|path| shown(path)).collect();
            json!({"why": reason.text(), "count": count, "first": named})
        });
        let rows: Vec<_> = rows.collect();
        (!rows.is_empty()).then(|| rows.into())
    }
}
