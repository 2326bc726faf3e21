use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a value that no panic can leave half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
