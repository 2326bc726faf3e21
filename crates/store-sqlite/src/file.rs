//! The file of a database: readable only by its owner, opened under a single name, and refused if SQLite could not keep
//! it consistent.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::fault::OpenError;

/// Creates the file and its folder if they do not exist, and returns its canonical path.
pub(crate) fn prepare(path: &Path) -> Result<PathBuf, OpenError> {
    let unreadable = |error: io::Error| OpenError::unreadable(path, error);
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        folder_builder().recursive(true).create(folder).map_err(unreadable)?;
    }
    check_left_log(path)?;
    // Opening a pipe would block the process.
    if std::fs::metadata(path).is_err() {
        let made = options().create_new(true).open(path);
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(unreadable(error));
            }
            _ => {}
        }
    }
    check(path)
}

/// Refuses a place with the write-ahead log of a file that is gone or empty. A new file is never empty while it has one.
fn check_left_log(path: &Path) -> Result<(), OpenError> {
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let log = PathBuf::from(log);
    match size(path) == 0 && size(&log) > 0 {
        true => Err(OpenError::LogLeft(log)),
        false => Ok(()),
    }
}

/// Returns the canonical path of an existing file.
pub(crate) fn check(path: &Path) -> Result<PathBuf, OpenError> {
    let unreadable = |error: io::Error| OpenError::unreadable(path, error);
    let found = std::fs::metadata(path).map_err(unreadable)?;
    if !found.is_file() {
        return Err(unreadable(io::Error::other("it is not a regular file")));
    }
    let canonical = path.canonicalize().map_err(unreadable)?;
    if let Some(why) = other_names(&canonical, &found) {
        return Err(OpenError::several_names(path, why));
    }
    Ok(canonical)
}

#[cfg(unix)]
fn options() -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = OpenOptions::new();
    // SQLite gives the files next to it the same mode.
    options.write(true).mode(0o600);
    options
}

#[cfg(unix)]
fn folder_builder() -> DirBuilder {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

#[cfg(not(unix))]
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    options
}

#[cfg(not(unix))]
fn folder_builder() -> DirBuilder {
    DirBuilder::new()
}

/// Returns the reason if the file has a name under which SQLite would not find the files next to it.
///
/// Two processes would then have separate write-ahead logs and locks, see <https://www.sqlite.org/howtocorrupt.html>,
/// sections 2.4 and 2.5.
#[cfg(unix)]
fn other_names(canonical: &Path, found: &std::fs::Metadata) -> Option<&'static str> {
    use std::os::unix::fs::MetadataExt;
    if found.nlink() > 1 {
        return Some("it has hard links");
    }
    mounted_alone(canonical).then_some("it is mounted alone, without its folder")
}

#[cfg(not(unix))]
fn other_names(_: &Path, _: &std::fs::Metadata) -> Option<&'static str> {
    None
}

/// Returns whether the file is on another mount than its folder. A kernel that does not report mounts (before Linux
/// 5.8) counts as no.
#[cfg(target_os = "linux")]
fn mounted_alone(canonical: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let mount = |path: &Path| {
        let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
        StatxFlags::from_bits_retain(found.stx_mask)
            .contains(StatxFlags::MNT_ID)
            .then_some(found.stx_mnt_id)
    };
    let folder = canonical.parent().and_then(mount);
    folder.is_some_and(|folder| mount(canonical).is_some_and(|file| file != folder))
}

#[cfg(all(unix, not(target_os = "linux")))]
fn mounted_alone(_: &Path) -> bool {
    false
}
