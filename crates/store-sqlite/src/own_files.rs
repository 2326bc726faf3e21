//! The files and folders that belong to a database, by whatever name.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::identity::identity;

/// What is behind the name of a database in the names of its own files and folders.
const OF_A_STORE: [&str; 5] = ["", "-wal", "-shm", "-journal", ".runs"];
/// What such names begin with that end with an id: the files by which processes own runs.
const OF_AN_OWNER: &str = "-owner-";

/// Is it a file of a database, by whatever name?
pub(crate) fn is_of(database: &Path, file: &Path) -> bool {
    // It may have been opened by the name of a link.
    let real = database.canonicalize().unwrap_or_else(|_| database.to_owned());
    [database, &real].into_iter().flat_map(own_files).any(|own| {
        // A file that is not there yet has a name and a folder only.
        let named = file.file_name() == own.file_name();
        named && is_same(folder_of(file), folder_of(&own))
            || is_same(file, &own)
            || is_same(folder_of(file), &own)
    })
}

/// Names the files and folders of a database, whether they are there or not.
fn own_files(database: &Path) -> Vec<PathBuf> {
    let mut own: Vec<PathBuf> =
        OF_A_STORE.iter().map(|suffix| with_suffix(database, suffix)).collect();
    let owner = with_suffix(database, OF_AN_OWNER);
    let begin = owner.file_name().unwrap_or_default().as_encoded_bytes();
    let entries = std::fs::read_dir(folder_of(database)).into_iter().flatten().flatten();
    let owners = entries.filter(|at| at.file_name().as_encoded_bytes().starts_with(begin));
    own.extend(owners.map(|owner| owner.path()));
    own
}

/// Are two names those of one file or folder?
fn is_same(one: &Path, other: &Path) -> bool {
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

fn with_suffix(database: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = database.file_name().unwrap_or(OsStr::new("")).to_owned();
    name.push(suffix);
    database.with_file_name(name)
}

/// Returns the folder that a file stands in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
