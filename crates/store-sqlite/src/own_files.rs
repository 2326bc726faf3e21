//! The files and folders that belong to a database, under any name.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::identity::identity;

/// Suffixes of a database's own files and folders, after the name of the database.
const OF_A_STORE: [&str; 5] = ["", "-wal", "-shm", "-journal", ".runs"];
/// Prefix of the suffixes that end with an id: the files with which processes own runs.
const OF_AN_OWNER: &str = "-owner-";

/// Returns whether it is a file of a database, under any name.
pub(crate) fn is_own_file(database: &Path, file: &Path) -> bool {
    // The database may have been opened through a link.
    let real = database.canonicalize().unwrap_or_else(|_| database.to_owned());
    [database, &real].into_iter().flat_map(own_files).any(|own| {
        // A file that does not exist yet has only a name and a folder.
        let named = file.file_name() == own.file_name();
        named && is_same(parent_folder(file), parent_folder(&own))
            || is_same(file, &own)
            || is_same(parent_folder(file), &own)
    })
}

/// Returns the files and folders of a database, whether or not they exist.
fn own_files(database: &Path) -> Vec<PathBuf> {
    let mut own: Vec<PathBuf> =
        OF_A_STORE.iter().map(|suffix| with_suffix(database, suffix)).collect();
    let owner = with_suffix(database, OF_AN_OWNER);
    let begin = owner.file_name().unwrap_or_default().as_encoded_bytes();
    let entries = std::fs::read_dir(parent_folder(database)).into_iter().flatten().flatten();
    let owners = entries.filter(|at| at.file_name().as_encoded_bytes().starts_with(begin));
    own.extend(owners.map(|owner| owner.path()));
    own
}

/// Returns whether two names lead to the same file or folder.
fn is_same(one: &Path, other: &Path) -> bool {
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

fn with_suffix(database: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = database.file_name().unwrap_or(OsStr::new("")).to_owned();
    name.push(suffix);
    database.with_file_name(name)
}

/// Returns the folder of a file.
pub(crate) fn parent_folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
