use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use backstop_clock::{Clock, SystemClock};
use backstop_redact::Redactor;
use layer0::error::StateError;
use layer0::state::{
    Added, Expected, Scope, StateAdd, StateEntry, StateQuery, StateWrite, Versioned,
};
use layer0::{StateStore, Timestamp};

use crate::prepared::{PreparedWrite, check_identity};
use crate::words::words;

/// Default capacity of a store in memory, in bytes.
const DEFAULT_CAPACITY: usize = 64 * 1024 * 1024;

/// A state store that lives as long as the process. Its default capacity is 64 MiB; writes beyond the capacity fail.
/// Clones share it.
#[derive(Clone)]
pub struct MemoryStateStore {
    kept: Arc<Mutex<StateTable>>,
    capacity: usize,
    clock: Arc<dyn Clock>,
    redactor: Redactor,
}

#[derive(Default)]
struct StateTable {
    values: BTreeMap<(Scope, String), StateRow>,
    /// Number of writes, which is the version of the last one.
    writes: u64,
    bytes: usize,
    /// Time before which no value expires.
    next_expiry: Option<Timestamp>,
}

struct StateRow {
    value: Versioned,
    words: BTreeSet<String>,
    bytes: usize,
}

impl MemoryStateStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self {
            kept: Arc::default(),
            capacity: DEFAULT_CAPACITY,
            clock: Arc::new(SystemClock),
            redactor: Redactor::new(),
        }
    }

    /// Sets the capacity: the maximum bytes of keys and values.
    #[must_use]
    pub const fn capacity(mut self, bytes: usize) -> Self {
        self.capacity = bytes;
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the redactor that removes secrets.
    #[must_use]
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    /// Returns the current values, without those that have expired.
    fn lock_current(&self) -> (MutexGuard<'_, StateTable>, Timestamp) {
        let (mut kept, now) =
            (self.kept.lock().unwrap_or_else(PoisonError::into_inner), self.clock.now());
        let expired = |row: &StateRow| row.value.expires_at.is_some_and(|at| at <= now);
        if kept.next_expiry.is_some_and(|at| at <= now) {
            kept.values.retain(|_, row| !expired(row));
            kept.bytes = kept.values.values().map(|row| row.bytes).sum();
            kept.next_expiry = kept.values.values().filter_map(|row| row.value.expires_at).min();
        }
        (kept, now)
    }

    fn write_to(
        &self,
        kept: &mut StateTable,
        write: StateWrite,
        now: Timestamp,
    ) -> Result<u64, StateError> {
        let write = PreparedWrite::new(write, &self.redactor, now)?;
        let at = (write.scope, write.key);
        let found = kept.find_version(&at);
        if !write.expected.allows(found) {
            return Err(StateError::conflict(&at.0, at.1, found));
        }
        let bytes = at.1.len() + write.value.get().len();
        let before = kept.values.get(&at).map_or(0, |row| row.bytes);
        if kept.bytes - before + bytes > self.capacity {
            let most = self.capacity;
            return Err(StateError::WriteFailed(format!(
                "the store in memory holds at most {most} bytes"
            )));
        }
        kept.writes += 1;
        kept.next_expiry = kept.next_expiry.into_iter().chain(write.expires_at).min();
        kept.bytes = kept.bytes - before + bytes;
        let version = kept.writes;
        let value = Versioned::new(write.value, version, now).expires_at(write.expires_at);
        kept.values.insert(at, StateRow { value, words: words(&write.words).collect(), bytes });
        Ok(version)
    }
}

impl Default for MemoryStateStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStateStore").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl StateTable {
    fn find_version(&self, at: &(Scope, String)) -> Option<u64> {
        self.values.get(at).map(|row| row.value.version)
    }

    /// Returns the values of a scope whose keys have this prefix, in the order of keys.
    fn under(
        &self,
        scope: &Scope,
        prefix: &str,
    ) -> impl DoubleEndedIterator<Item = (&String, &StateRow)> {
        let rows = self.values.range((scope.clone(), prefix.to_owned())..);
        let rows = rows.take_while(|((of, key), _)| of == scope && key.starts_with(prefix));
        rows.map(|((_, key), row)| (key, row)).collect::<Vec<_>>().into_iter()
    }

    fn remove(&mut self, at: &(Scope, String)) -> bool {
        let removed = self.values.remove(at);
        self.bytes -= removed.as_ref().map_or(0, |row| row.bytes);
        removed.is_some()
    }
}

#[async_trait]
impl StateStore for MemoryStateStore {
    async fn read(&self, scope: &Scope, key: &str) -> Result<Option<Versioned>, StateError> {
        check_identity(scope, key, &self.redactor)?;
        let found = self
            .lock_current()
            .0
            .values
            .get(&(scope.clone(), key.to_owned()))
            .map(|row| &row.value)
            .cloned();
        Ok(found)
    }

    async fn write(&self, write: StateWrite) -> Result<u64, StateError> {
        let (mut kept, now) = self.lock_current();
        self.write_to(&mut kept, write, now)
    }

    async fn add(&self, add: StateAdd) -> Result<Added, StateError> {
        check_identity(&add.scope, &add.key, &self.redactor)?;
        let (mut kept, now) = self.lock_current();
        let stored = kept.values.get(&(add.scope.clone(), add.key.clone()));
        let write = match add.over(stored.map(|row| &row.value))? {
            Ok(write) => write,
            Err(found) => return Ok(Added::Refused(found)),
        };
        let sum = write.value.text()?.read().unwrap_or_default();
        self.write_to(&mut kept, write, now).map(|_| Added::Done(sum))
    }

    async fn delete(
        &self,
        scope: &Scope,
        key: &str,
        expected: Expected,
    ) -> Result<bool, StateError> {
        check_identity(scope, key, &self.redactor)?;
        let (mut kept, _) = self.lock_current();
        let at = (scope.clone(), key.to_owned());
        let found = kept.find_version(&at);
        match expected.allows(found) {
            true => Ok(kept.remove(&at)),
            false => Err(StateError::conflict(&at.0, at.1, found)),
        }
    }

    async fn list(&self, query: StateQuery) -> Result<Vec<StateEntry>, StateError> {
        let StateQuery { scope, prefix, after, backwards, newest_first, limit, .. } = query;
        let (kept, _) = self.lock_current();
        let listed = kept.under(&scope, &prefix);
        if newest_first {
            let listed = listed.map(|(key, row)| (key.clone(), row.value.clone()));
            let mut listed: Vec<_> = listed.collect();
            listed.sort_by_key(|(_, value)| std::cmp::Reverse(value.version));
            listed.truncate(count(limit));
            return Ok(listed);
        }
        let listed: Vec<_> = match backwards {
            false => listed.filter(|(key, _)| after.as_ref().is_none_or(|it| *key > it)).collect(),
            true => {
                listed.rev().filter(|(key, _)| after.as_ref().is_none_or(|it| *key < it)).collect()
            }
        };
        let listed = listed.into_iter().map(|(key, row)| (key.clone(), row.value.clone()));
        Ok(listed.take(count(limit)).collect())
    }

    async fn search(&self, query: StateQuery, text: &str) -> Result<Vec<StateEntry>, StateError> {
        let wanted: BTreeSet<String> = words(text).collect();
        let (kept, _) = self.lock_current();
        let ranked = kept
            .under(&query.scope, &query.prefix)
            .map(|(key, row)| (wanted.intersection(&row.words).count(), key, &row.value));
        let mut ranked: Vec<_> = ranked.filter(|(fit, ..)| *fit > 0).collect();
        ranked.sort_by_key(|(fit, _, value)| std::cmp::Reverse((*fit, value.version)));
        ranked.truncate(count(query.limit));
        Ok(ranked.into_iter().map(|(_, key, value)| (key.clone(), value.clone())).collect())
    }

    async fn scopes(&self, after: Option<&Scope>, limit: u32) -> Result<Vec<Scope>, StateError> {
        let (kept, _) = self.lock_current();
        let scopes = kept.values.keys().map(|(scope, _)| (scope.to_string(), scope));
        let scopes: BTreeMap<String, &Scope> = scopes.collect();
        let after = after.map(ToString::to_string);
        let listed =
            scopes.into_iter().filter(|(text, _)| after.as_ref().is_none_or(|it| text > it));
        Ok(listed.map(|(_, scope)| scope.clone()).take(count(limit)).collect())
    }

    async fn clear(&self, scope: &Scope) -> Result<u64, StateError> {
        let (mut kept, _) = self.lock_current();
        let before = kept.values.len();
        kept.values.retain(|(of, _), _| of != scope);
        kept.bytes = kept.values.values().map(|row| row.bytes).sum();
        Ok(u64::try_from(before - kept.values.len()).unwrap_or(u64::MAX))
    }
}

fn count(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}
