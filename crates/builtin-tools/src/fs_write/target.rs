//! The file to write.

use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use backstop_tool::ToolError;
use sha2::{Digest, Sha256};

use crate::path;

/// Maximum size of a replaced file, in bytes.
const MAX_OLD_BYTES: u64 = 256 * 1024 * 1024;

/// A file to write, with its current content.
pub(super) struct WriteTarget {
    path: PathBuf,
    old: Option<Old>,
}

struct Old {
    bytes: Vec<u8>,
    metadata: Metadata,
}

impl WriteTarget {
    /// Reads the current content, if the path leads to the file that the policy checked. Errors name the file as
    /// `shown`.
    pub(super) fn open(
        path: PathBuf,
        shown: &str,
        judged: impl Fn(&Path) -> bool,
    ) -> Result<Self, ToolError> {
        let refused = |why: String| ToolError::InvalidInput(format!("path `{shown}` {why}"));
        if !judged(&path) {
            return Err(path::OpenFailure::Moved.into_tool_error(shown));
        }
        let is_there = match std::fs::symlink_metadata(&path) {
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(refused(format!("cannot be read: {error}"))),
        };
        if !is_there {
            return match path.parent() {
                Some(folder) if folder.is_dir() => Ok(Self { path, old: None }),
                _ => Err(refused("is in a folder that does not exist".to_owned())),
            };
        }
        let (file, metadata) =
            path::open_judged(&path, judged).map_err(|failure| failure.into_tool_error(shown))?;
        if metadata.len() > MAX_OLD_BYTES {
            return Err(refused(format!("has more than {MAX_OLD_BYTES} bytes")));
        }
        let mut bytes = Vec::new();
        file.take(MAX_OLD_BYTES)
            .read_to_end(&mut bytes)
            .map_err(|error| refused(format!("cannot be read: {error}")))?;
        Ok(Self { path, old: Some(Old { bytes, metadata }) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the current content of the file; `None` if it does not exist.
    pub(super) fn old(&self) -> Option<&[u8]> {
        self.old.as_ref().map(|old| &*old.bytes)
    }

    /// Returns an identifier of the replaced content.
    pub(super) fn digest(&self) -> String {
        match self.old() {
            Some(bytes) => {
                let digest = Sha256::digest(bytes);
                let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("sha256:{hex}")
            }
            None => "nothing".to_owned(),
        }
    }

    /// Replaces the content atomically.
    pub(super) fn replace(&self, content: &str) -> io::Result<()> {
        let (Some(parent), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        };
        // The folder is kept open: a link that replaces it meanwhile has no effect.
        let folder = File::open(parent)?;
        if path::opened_path(&folder, parent)? != parent {
            return Err(io::Error::other("its folder changed meanwhile"));
        }
        let reached = path::by_descriptor(&folder, parent);
        let mut builder = tempfile::Builder::new();
        builder.prefix(".backstop-");
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut file = builder.tempfile_in(&reached)?;
        file.write_all(content.as_bytes())?;
        if let Some(old) = &self.old {
            keep_owner(file.as_file(), &old.metadata)?;
            file.as_file().set_permissions(old.metadata.permissions())?;
        }
        file.as_file().sync_all()?;
        file.persist(reached.join(name)).map_err(|error| error.error)?;
        #[cfg(unix)]
        folder.sync_all()?;
        Ok(())
    }
}

/// Gives a file the owner of another one.
#[cfg(unix)]
fn keep_owner(file: &File, old: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, fchown};

    let new = file.metadata()?;
    let changed = |old: u32, new: u32| (old != new).then_some(old);
    match (changed(old.uid(), new.uid()), changed(old.gid(), new.gid())) {
        (None, None) => Ok(()),
        (owner, group) => fchown(file, owner, group)
            .map_err(|error| io::Error::new(error.kind(), "its owner cannot be kept")),
    }
}

#[cfg(not(unix))]
fn keep_owner(_: &File, _: &Metadata) -> io::Result<()> {
    Ok(())
}
