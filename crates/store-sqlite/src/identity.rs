//! Identity of the file under a path.

use std::path::{Path, PathBuf};

/// The identity of a file when it was opened. The file may be removed, renamed or replaced while it is open.
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
    /// Returns the identity of the file that is now at this path.
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

/// Returns a value that is equal for two names of the same file.
#[cfg(unix)]
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Returns a value that is equal for two names of the same file.
#[cfg(not(unix))]
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    path.canonicalize().ok()
}
