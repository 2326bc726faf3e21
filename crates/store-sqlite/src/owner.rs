//! Who owns runs: a process that has the database open, for as long as it lives.
//!
//! An owner is a file beside the database, named by a random id, that its process keeps locked. The
//! system frees the lock when the process dies, so that a claim needs no lease and no clock. The file
//! stands beside the database itself, found by its canonical path, so that every name of a database
//! leads to the same owners.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// What stands between the name of the database and the id of an owner.
const SUFFIX: &str = "-owner-";
/// How often another id is drawn when a file was taken away while it was locked.
const TRIES: u32 = 16;

/// The owner that this open database is. Its file is made for the first claim.
#[derive(Debug)]
pub(crate) struct Owner {
    /// The canonical path of the database; `None` for one in memory, which no other process sees.
    database: Option<PathBuf>,
    locked: Mutex<Option<Locked>>,
}

#[derive(Debug)]
struct Locked {
    id: Arc<str>,
    path: PathBuf,
    /// Locked until it is closed.
    _file: File,
}

impl Owner {
    pub(crate) const fn of_file(database: PathBuf) -> Self {
        Self { database: Some(database), locked: Mutex::new(None) }
    }

    pub(crate) const fn in_memory() -> Self {
        Self { database: None, locked: Mutex::new(None) }
    }

    pub(crate) const fn is_in_memory(&self) -> bool {
        self.database.is_none()
    }

    /// Returns the id of this owner; makes and locks its file, if that was not done yet.
    pub(crate) fn id(&self) -> io::Result<Arc<str>> {
        let Some(database) = &self.database else { return Ok("memory".into()) };
        let mut locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(locked) = &*locked {
            return Ok(Arc::clone(&locked.id));
        }
        remove_dead(database);
        let made = lock_new(database)?;
        let id = Arc::clone(&made.id);
        *locked = Some(made);
        Ok(id)
    }

    /// Does another owner's process live?
    pub(crate) fn is_alive(&self, id: &str) -> io::Result<bool> {
        let Some(database) = &self.database else { return Ok(false) };
        is_locked(&path_of(database, id))
    }

    /// Ends this owner; nothing may be claimed by it any more.
    pub(crate) fn end(&self) {
        let locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Locked { path, .. }) = locked {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Ends this owner when its database is closed. One that claimed nothing has not looked for the
    /// files of dead ones yet.
    pub(crate) fn leave(&self) {
        let has_claimed = self.locked.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if !has_claimed && let Some(database) = &self.database {
            remove_dead(database);
        }
        self.end();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.end();
    }
}

fn path_of(database: &Path, id: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(SUFFIX);
    // An id that was changed leads to no other place.
    path.push(id.replace(|c: char| !c.is_ascii_hexdigit(), "_"));
    path.into()
}

fn lock_new(database: &Path) -> io::Result<Locked> {
    for _ in 0..TRIES {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let id: Arc<str> =
            random.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into();
        let path = path_of(database, &id);
        let file = options().create_new(true).open(&path)?;
        // Another process may have found the file before it was locked, and taken it for a dead one.
        if file.try_lock().is_ok() && path.exists() {
            return Ok(Locked { id, path, _file: file });
        }
    }
    Err(io::Error::other("the file of the owner was taken away again and again"))
}

/// Is there a file, and a process that keeps it locked? Those that look share a lock, so that they do
/// not take each other for the owner.
fn is_locked(path: &Path) -> io::Result<bool> {
    match File::open(path) {
        Ok(file) => match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Takes the files of dead owners away.
fn remove_dead(database: &Path) {
    let (Some(folder), Some(name)) = (database.parent(), database.file_name()) else { return };
    let prefix = format!("{}{SUFFIX}", name.to_string_lossy());
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.filter_map(Result::ok) {
        if !entry.file_name().to_string_lossy().starts_with(&prefix) {
            continue;
        }
        // Shared, as those that look: no process takes a dead owner for a living one meanwhile.
        if let Ok(file) = File::open(entry.path())
            && file.try_lock_shared().is_ok()
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> usize {
        std::fs::read_dir(folder).unwrap().count()
    }

    /// Spec: D8
    #[test]
    fn an_owner_lives_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let (one, other) = (Owner::of_file(database.clone()), Owner::of_file(database));
        assert_eq!(names(folder.path()), 0, "no file before the first claim");
        let id = one.id().unwrap();
        assert_eq!(one.id().unwrap(), id);
        assert_ne!(other.id().unwrap(), id, "owners differ");
        assert!(other.is_alive(&id).unwrap());
        assert!(!other.is_alive("0123").unwrap(), "one that never was");
        drop(one);
        assert!(!other.is_alive(&id).unwrap());
        other.end();
        assert_eq!(names(folder.path()), 0, "nothing is left behind");
    }

    /// Spec: D8
    #[test]
    fn files_of_dead_owners_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        std::fs::write(path_of(&database, "dead"), "").unwrap();
        let living = Owner::of_file(database.clone());
        living.id().unwrap();
        let other = Owner::of_file(database);
        other.id().unwrap();
        assert_eq!(names(folder.path()), 2, "the living ones stay");
    }
}
