//! Locks by start key.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// An operator and a key of one of its runs.
type LockName = (Arc<str>, Arc<str>);

/// One lock for each start key in use, so that a slow store holds up only calls with the same key.
#[derive(Default)]
pub(crate) struct KeyLocks(Mutex<BTreeMap<LockName, Weak<AsyncMutex<()>>>>);

impl KeyLocks {
    /// Waits for the lock of a key, which is held until the guard is dropped.
    pub(crate) async fn lock(&self, operator: &Arc<str>, key: &str) -> OwnedMutexGuard<()> {
        self.lock_for((Arc::clone(operator), key.into())).lock_owned().await
    }

    fn lock_for(&self, key: LockName) -> Arc<AsyncMutex<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = locks.get(&key).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::default();
        locks.insert(key, Arc::downgrade(&lock));
        lock
    }
}
