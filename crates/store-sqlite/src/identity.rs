//! The file that a name leads to.

use std::path::{Path, PathBuf};

/// A file as it was when it was opened. It may be removed, renamed or replaced under its open descriptor.
#[derive(Debug, Clone)]
pub(crate) struct FileIdentity {
    path: PathBuf,
    known: Option<Identity>,
}

#[cfg(unix)]
type Identity = (u64, u64);
#[cfg(not(unix))]
type Identity = PathBuf;

impl FileIdentity {
    /// Takes the file that this path leads to now.
    pub(crate) fn take(path: &Path) -> Self {
        Self { path: path.to_owned(), known: identity(path) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the path still leads to the same file.
    pub(crate) fn holds(&self) -> bool {
        self.known.is_some() && identity(&self.path) == self.known
    }
}

/// Returns what makes two names those of one file.
#[cfg(unix)]
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Returns what makes two names those of one file.
#[cfg(not(unix))]
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    path.canonicalize().ok()
}
