//! Owners of runs: processes that have the database open, as long as they live.
//!
//! An owner is a file next to the database, named by a random id, that its process keeps locked. The system releases
//! the lock when the process dies, so that a claim needs no heartbeat and no clock. The file is in the folder of the
//! database's canonical path, so that every name of a database leads to the same owners.

use std::collections::HashSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use backstop_clock::{Clock, SystemClock};
use backstop_event_log::Claims;
use layer0::id::RunId;
use tokio::sync::watch;

use crate::identity::FileIdentity;

/// The text between the name of the database and the id of an owner.
const SUFFIX: &str = "-owner-";
/// Maximum number of ids that are drawn if a file is removed while it is being locked.
const TRIES: u32 = 16;

/// Interval between checks of the owner and database files.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Time without its file after which an owner counts as dead: it notices the loss and stops earlier.
pub(crate) const TAKEN_AFTER: Duration = Duration::from_secs(1);

/// The owner of this open database. Its file is created for the first claim.
#[derive(Debug)]
pub(crate) struct Owner {
    /// Canonical path of the database; `None` for a database in memory, which no other process sees.
    database: Option<PathBuf>,
    /// Identity of the database file, once it is open.
    opened: OnceLock<FileIdentity>,
    is_database_lost: AtomicBool,
    locked: Mutex<Option<Arc<OwnerFile>>>,
    /// Dead owners whose files this process removed.
    removed: Mutex<HashSet<String>>,
    /// Notifies when a file that excludes other processes was lost.
    lost: watch::Sender<()>,
}

/// The file of an owner. Others may remove it, for example a program that cleans folders; another process then
/// considers its owner dead.
#[derive(Debug)]
pub(crate) struct OwnerFile {
    id: Arc<str>,
    identity: FileIdentity,
    /// Locked until it is closed.
    _file: File,
}

impl OwnerFile {
    /// Returns whether the locked file is still at its path.
    pub(crate) fn holds(&self) -> bool {
        self.identity.holds()
    }

    /// Returns whether this is the file of the owner with an id.
    pub(crate) fn is_named(&self, id: &str) -> bool {
        *self.id == *id
    }
}

/// The observed state of another owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OtherOwner {
    Alive,
    Dead,
    /// Its file is gone. The owner may be alive and not have noticed yet.
    Missing,
}

impl Owner {
    pub(crate) fn with_file(database: PathBuf) -> Self {
        Self::new(Some(database))
    }

    pub(crate) fn in_memory() -> Self {
        Self::new(None)
    }

    fn new(database: Option<PathBuf>) -> Self {
        Self {
            database,
            opened: OnceLock::new(),
            is_database_lost: AtomicBool::new(false),
            locked: Mutex::new(None),
            removed: Mutex::default(),
            lost: watch::Sender::new(()),
        }
    }

    /// Remembers the identity of the open database file, which must exist.
    pub(crate) fn record_identity(&self) {
        if let Some(database) = &self.database {
            self.opened.get_or_init(|| FileIdentity::take(database));
        }
    }

    /// Returns whether the path of the database still leads to the file that was opened. Once it does not, the result
    /// stays `false`.
    pub(crate) fn database_holds(&self) -> bool {
        let Some(opened) = self.opened.get() else { return true };
        if !self.is_database_lost.load(Ordering::SeqCst) && !opened.holds() {
            self.is_database_lost.store(true, Ordering::SeqCst);
            tracing::warn!(path = %opened.path().display(), "the file of the database is gone");
            self.lost.send_replace(());
        }
        !self.is_database_lost.load(Ordering::SeqCst)
    }

    /// Returns the path of the database, if it has one.
    pub(crate) fn database(&self) -> Option<&Path> {
        self.database.as_deref()
    }

    /// Returns the file of this owner, once it has one.
    pub(crate) fn file(&self) -> Option<Arc<OwnerFile>> {
        self.lock_owner_file().clone()
    }

    /// Returns a receiver that is notified when a file was lost.
    pub(crate) fn subscribe_to_losses(&self) -> watch::Receiver<()> {
        self.lost.subscribe()
    }

    /// Checks the files that exclude other processes, until the owner is dropped.
    pub(crate) async fn watch_files(owner: Weak<Self>, claims: Claims) {
        loop {
            SystemClock.sleep(LOOK_EVERY).await;
            let Some(owner) = owner.upgrade() else { return };
            if !owner.database_holds() {
                return;
            }
            owner.retire_lost(&claims);
        }
    }

    /// Retires an owner whose file is gone, with its claims: a new owner is created for the next claim.
    fn retire_lost(&self, claims: &Claims) {
        let mut locked = self.lock_owner_file();
        if let Some(gone) = locked.take_if(|file| !file.holds()) {
            claims.lose_all(&gone.id);
            drop(locked);
            let path = gone.identity.path().display();
            tracing::warn!(%path, "the file by which this process owns its runs is gone");
            self.lost.send_replace(());
        }
    }

    fn lock_owner_file(&self) -> MutexGuard<'_, Option<Arc<OwnerFile>>> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_removed(&self) -> MutexGuard<'_, HashSet<String>> {
        self.removed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) const fn is_in_memory(&self) -> bool {
        self.database.is_none()
    }

    /// Returns the id of this owner; creates and locks its file if there is none.
    pub(crate) fn id(&self) -> io::Result<Arc<str>> {
        self.id_in(&mut self.lock_owner_file())
    }

    fn id_in(&self, locked: &mut Option<Arc<OwnerFile>>) -> io::Result<Arc<str>> {
        let Some(database) = &self.database else { return Ok("memory".into()) };
        if let Some(locked) = locked {
            return Ok(Arc::clone(&locked.id));
        }
        self.lock_removed().extend(remove_dead(database));
        let made = lock_new(database)?;
        let id = Arc::clone(&made.id);
        *locked = Some(Arc::new(made));
        Ok(id)
    }

    /// Returns the id as [`Owner::id`] does, and marks these runs as requested for it, before it can be lost.
    pub(crate) fn id_asking(&self, claims: &Claims, runs: &[RunId]) -> io::Result<Arc<str>> {
        let mut locked = self.lock_owner_file();
        let id = self.id_in(&mut locked)?;
        runs.iter().for_each(|run| claims.ask_for(run, &id));
        Ok(id)
    }

    /// Returns the state of another owner.
    pub(crate) fn look(&self, id: &str) -> io::Result<OtherOwner> {
        let Some(database) = &self.database else { return Ok(OtherOwner::Dead) };
        if self.lock_removed().contains(id) {
            return Ok(OtherOwner::Dead);
        }
        look_at(&owner_file_path(database, id))
    }

    /// Ends this owner, so that it can claim no run any more.
    pub(crate) fn end(&self) {
        let locked = self.lock_owner_file().take();
        if let Some(file) = locked.filter(|file| file.holds()) {
            let _ = std::fs::remove_file(file.identity.path());
        }
    }

    /// Ends this owner when its database is closed. An owner that claimed nothing has not removed the files of dead
    /// owners yet.
    pub(crate) fn leave(&self) {
        let has_claimed = self.lock_owner_file().is_some();
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

fn owner_file_path(database: &Path, id: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(SUFFIX);
    // A changed id leads to no other place.
    path.push(id.replace(|c: char| !c.is_ascii_hexdigit(), "_"));
    path.into()
}

fn lock_new(database: &Path) -> io::Result<OwnerFile> {
    for _ in 0..TRIES {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let id: Arc<str> =
            random.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into();
        let path = owner_file_path(database, &id);
        let file = options().create_new(true).open(&path)?;
        // Another process may have found the file before it was locked, and considered it dead.
        if file.try_lock().is_ok() && path.exists() {
            return Ok(OwnerFile { id, identity: FileIdentity::take(&path), _file: file });
        }
    }
    Err(io::Error::other("the file of the owner was taken away again and again"))
}

/// Checks whether the file exists and a process keeps it locked. Checks take a shared lock, so that they do not mistake
/// each other for the owner.
fn look_at(path: &Path) -> io::Result<OtherOwner> {
    match File::open(path) {
        Ok(file) => match file.try_lock_shared() {
            Ok(()) => Ok(OtherOwner::Dead),
            Err(TryLockError::WouldBlock) => Ok(OtherOwner::Alive),
            Err(TryLockError::Error(error)) => Err(error),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(OtherOwner::Missing),
        Err(error) => Err(error),
    }
}

/// Removes the files of dead owners, and returns their ids.
fn remove_dead(database: &Path) -> Vec<String> {
    let mut removed = Vec::new();
    let (Some(folder), Some(name)) = (database.parent(), database.file_name()) else {
        return removed;
    };
    let prefix = format!("{}{SUFFIX}", name.to_string_lossy());
    let Ok(entries) = std::fs::read_dir(folder) else { return removed };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_prefix(&prefix)) else { continue };
        // A shared lock, as in other checks, so that no process mistakes a dead owner for a live one meanwhile.
        if let Ok(file) = File::open(entry.path())
            && file.try_lock_shared().is_ok()
            && std::fs::remove_file(entry.path()).is_ok()
        {
            removed.push(id.to_owned());
        }
    }
    removed
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
        let (one, other) = (Owner::with_file(database.clone()), Owner::with_file(database));
        assert_eq!(names(folder.path()), 0, "no file before the first claim");
        let id = one.id().unwrap();
        assert_eq!(one.id().unwrap(), id);
        assert_ne!(other.id().unwrap(), id, "owners differ");
        assert_eq!(other.look(&id).unwrap(), OtherOwner::Alive);
        assert_eq!(other.look("0123").unwrap(), OtherOwner::Missing, "one that never was");
        drop(one);
        assert_eq!(other.look(&id).unwrap(), OtherOwner::Missing);
        other.end();
        assert_eq!(names(folder.path()), 0, "nothing is left behind");
    }

    /// Spec: D8
    #[test]
    fn files_of_dead_owners_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        std::fs::write(owner_file_path(&database, "dead"), "").unwrap();
        let living = Owner::with_file(database.clone());
        living.id().unwrap();
        let other = Owner::with_file(database);
        other.id().unwrap();
        assert_eq!(names(folder.path()), 2, "the living ones stay");
        assert_eq!(living.look("dead").unwrap(), OtherOwner::Dead, "it was removed here");
        assert_eq!(other.look("dead").unwrap(), OtherOwner::Missing);
    }

    /// Spec: D8. A program that cleans folders takes the file away.
    #[test]
    fn owner_without_its_file_owns_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (owner, claims) = (Owner::with_file(folder.path().join("a.db")), Claims::default());
        let id = owner.id().unwrap();
        let file = owner.file().unwrap();
        assert!(file.holds());
        owner.retire_lost(&claims);
        assert_eq!(owner.id().unwrap(), id);
        let path = file.identity.path().to_owned();
        std::fs::remove_file(&path).unwrap();
        assert!(!file.holds());
        std::fs::write(&path, "").unwrap();
        assert!(!file.holds(), "another file stands there");
        owner.retire_lost(&claims);
        assert_ne!(owner.id().unwrap(), id, "what is claimed later has another owner");
        assert!(!file.holds());
    }
}
