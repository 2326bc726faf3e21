//! Wakes watchers when the watched thing changes.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Watchers by the key that they watch. Clones share the watches.
#[derive(Debug)]
pub(crate) struct KeyedWatches<K>(Arc<Mutex<WatcherTable<K>>>);

#[derive(Debug)]
struct WatcherTable<K> {
    next: u64,
    by_key: HashMap<K, Vec<Watcher>>,
}

#[derive(Debug)]
struct Watcher {
    id: u64,
    /// Whether it was rung since its last poll.
    rung: bool,
    waker: Option<Waker>,
}

impl<K> Clone for KeyedWatches<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> Default for KeyedWatches<K> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(WatcherTable { next: 0, by_key: HashMap::new() })))
    }
}

impl<K: Clone + Eq + Hash> KeyedWatches<K> {
    /// Watches a key. Earlier changes count as new.
    pub(crate) fn watch(&self, key: &K) -> Watch<K> {
        let mut watched = self.lock();
        watched.next += 1;
        let id = watched.next;
        let watcher = Watcher { id, rung: true, waker: None };
        watched.by_key.entry(key.clone()).or_default().push(watcher);
        drop(watched);
        Watch { watches: self.clone(), key: key.clone(), id }
    }

    /// Wakes the watchers of a key.
    pub(crate) fn ring(&self, key: &K) {
        let mut watched = self.lock();
        let wakers: Vec<Waker> = watched
            .by_key
            .get_mut(key)
            .into_iter()
            .flatten()
            .filter_map(|watcher| {
                watcher.rung = true;
                watcher.waker.take()
            })
            .collect();
        drop(watched);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns whether there is no watch.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().by_key.is_empty()
    }
}

impl<K> KeyedWatches<K> {
    fn lock(&self) -> MutexGuard<'_, WatcherTable<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A watch, active until dropped.
#[derive(Debug)]
pub(crate) struct Watch<K: Clone + Eq + Hash> {
    watches: KeyedWatches<K>,
    key: K,
    id: u64,
}

impl<K: Clone + Eq + Hash> Watch<K> {
    /// Returns ready if it was rung since the last ready; the first time at once.
    pub(crate) fn poll_changed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut watched = self.watches.lock();
        let watchers = watched.by_key.get_mut(&self.key).into_iter().flatten();
        for watcher in watchers.filter(|watcher| watcher.id == self.id) {
            if std::mem::take(&mut watcher.rung) {
                return Poll::Ready(());
            }
            watcher.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl<K: Clone + Eq + Hash> Drop for Watch<K> {
    fn drop(&mut self) {
        let mut watched = self.watches.lock();
        if let Some(watchers) = watched.by_key.get_mut(&self.key) {
            watchers.retain(|watcher| watcher.id != self.id);
            if watchers.is_empty() {
                watched.by_key.remove(&self.key);
            }
        }
    }
}
