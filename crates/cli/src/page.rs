//! Writes of a page to a file, whole or not at all.

use std::io::{self, Write};
use std::path::Path;

use crate::store::AnyDatabase;

use crate::assemble::parent_folder;
use crate::exit::CliError;

/// Writes a page that only its owner can read, unless the file belongs to the store.
pub(crate) fn write(file: &Path, page: &str, database: &AnyDatabase) -> Result<(), CliError> {
    if database.owns(file) {
        return Err(CliError::usage(format!("{}: belongs to the store itself", file.display()))
            .with_hint("name another file"));
    }
    let written =
        if is_written_through(file) { std::fs::write(file, page) } else { replace(file, page) };
    written.map_err(|error| {
        CliError::usage(format!("{}: cannot be written: {error}", file.display()))
            .with_hint("name a file in a folder that exists and that you may write to")
    })
}

/// Writes to a new file with a random name, then renames it.
fn replace(file: &Path, page: &str) -> io::Result<()> {
    let folder = parent_folder(file);
    std::fs::metadata(folder.join("."))?;
    let new = tempfile::Builder::new().prefix(".backstop-").tempfile_in(folder);
    // Its error contains the name of the new file, which the user does not know.
    let mut new = new.map_err(|error| io::Error::from(error.kind()))?;
    new.write_all(page.as_bytes())?;
    new.as_file().sync_all()?;
    new.persist(file)?;
    Ok(())
}

/// Returns whether the file is a device, a pipe or a name for one, such as `/dev/stdout`. These cannot be replaced.
fn is_written_through(file: &Path) -> bool {
    // A folder is refused by the rename.
    let is_special = file.exists() && !file.is_file() && !file.is_dir();
    let folder = parent_folder(file).canonicalize().unwrap_or_default();
    is_special || file.is_symlink() && (folder == Path::new("/dev") || folder.starts_with("/proc"))
}
