//! Who writes to a run: a lock on a file beside the database, which ends with its process.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use event_log::{Claim, LogError};
use layer0::id::RunId;

/// How often a lock is tried again whose file or folder was taken away meanwhile.
const TRIES: u32 = 1_000;

/// The claims of a database: files beside one in a file, names in memory otherwise.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// The folder of lock files; `None` for a database in memory.
    folder: Option<PathBuf>,
    in_memory: Arc<Mutex<BTreeSet<RunId>>>,
}

impl Claims {
    pub(crate) fn beside(database: &Path) -> Self {
        let mut folder = database.as_os_str().to_owned();
        folder.push(".runs");
        Self { folder: Some(folder.into()), in_memory: Arc::default() }
    }

    pub(crate) fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        let Some(folder) = &self.folder else { return self.claim_in_memory(run) };
        let failed = |error: io::Error| LogError::Failed(error.into());
        // A run's id is its caller's choice; as hex, it is a file name wherever it comes from.
        let name: String = run.as_str().bytes().map(|byte| format!("{byte:02x}")).collect();
        let path = folder.join(name);
        for _ in 0..TRIES {
            let open = || OpenOptions::new().create(true).truncate(false).write(true).open(&path);
            let file = match std::fs::create_dir_all(folder).and_then(|()| open()) {
                Err(error) if was_taken_away(&error) => continue,
                file => file.map_err(failed)?,
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(LogError::Claimed(run.clone())),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            // Its holder may have taken the file away between opening and locking it.
            if is_still(&file, &path) {
                return Ok(Claim::holding(Locked { _file: file, path }));
            }
        }
        Err(LogError::Claimed(run.clone()))
    }

    fn claim_in_memory(&self, run: &RunId) -> Result<Claim, LogError> {
        let mut names = self.in_memory.lock().unwrap_or_else(PoisonError::into_inner);
        if !names.insert(run.clone()) {
            return Err(LogError::Claimed(run.clone()));
        }
        let names = Arc::clone(&self.in_memory);
        Ok(Claim::holding(Named { names, run: run.clone() }))
    }
}

/// A locked file. It is taken away first, and free when it is closed.
struct Locked {
    _file: File,
    path: PathBuf,
}

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        if let Some(folder) = self.path.parent() {
            // Only the last one out succeeds.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

struct Named {
    names: Arc<Mutex<BTreeSet<RunId>>>,
    run: RunId,
}

impl Drop for Named {
    fn drop(&mut self) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.run);
    }
}

/// Did somebody take the folder away between finding, making and using it?
fn was_taken_away(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists)
}

#[cfg(unix)]
fn is_still(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(locked), Ok(there)) => locked.ino() == there.ino() && locked.dev() == there.dev(),
        _ => false,
    }
}

/// An open file cannot be taken away here.
#[cfg(not(unix))]
fn is_still(_: &File, path: &Path) -> bool {
    path.exists()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    /// Spec: D8
    #[test]
    fn a_run_has_one_claim_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        for claims in [Claims::default(), Claims::beside(&database)] {
            let (one, other) = (RunId::from("run_1"), RunId::from("../run_2"));
            let first = claims.claim(&one).unwrap();
            assert!(matches!(claims.claim(&one), Err(LogError::Claimed(run)) if run == one));
            drop(claims.claim(&other).unwrap());
            drop(first);
            drop(claims.claim(&one).unwrap());
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
    }

    /// Spec: D8
    #[test]
    fn claims_that_race_never_both_win() {
        let folder = tempfile::tempdir().unwrap();
        let claims = Claims::beside(&folder.path().join("a.db"));
        let holders = AtomicUsize::new(0);
        let run = RunId::from("run_1");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        match claims.claim(&run) {
                            Ok(claim) => {
                                assert_eq!(holders.fetch_add(1, SeqCst), 0, "two hold it");
                                holders.fetch_sub(1, SeqCst);
                                drop(claim);
                            }
                            Err(LogError::Claimed(_)) => {}
                            Err(other) => panic!("{other:?}"),
                        }
                    }
                });
            }
        });
    }
}
