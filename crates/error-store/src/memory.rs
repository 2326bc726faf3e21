use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use async_trait::async_trait;
use layer0::Timestamp;
use layer0::id::{ErrorId, RunId, SessionId};

use crate::shelf::{Shelf, ShelfItem};
use crate::{
    ErrorFilter, ErrorRecord, ErrorStats, ErrorStore, Hold, Holds, Lookup, NewError, Pruned,
    Retention, StoreError, StoredError, error_id,
};

/// The default capacity of a store in memory, in bytes.
pub(crate) const DEFAULT_CAPACITY: u64 = 16 * 1024 * 1024;

/// An error store that lives as long as the process. It holds at most 16 MiB by default; beyond that, it drops the
/// errors longest unseen whose sessions have no open run.
#[derive(Debug)]
pub struct MemoryErrorStore {
    /// Created for the first run: many agents are never run.
    kept: OnceLock<Box<KeptErrors>>,
    capacity: u64,
}

#[derive(Debug, Default)]
struct KeptErrors {
    rows: Mutex<Rows>,
    holds: Holds,
}

/// Errors with indexes: a store is queried in every failing call.
#[derive(Debug, Default)]
struct Rows {
    shelf: Shelf<ErrorRow>,
    by_fingerprint: HashMap<(SessionId, String), u64>,
}

#[derive(Debug)]
struct ErrorRow {
    record: ErrorRecord,
    fingerprint: String,
    /// The runs that met it.
    runs: BTreeSet<RunId>,
}

impl ShelfItem for ErrorRow {
    fn id(&self) -> &str {
        self.record.id().as_str()
    }

    fn session(&self) -> &SessionId {
        self.record.session()
    }

    fn last_at(&self) -> Timestamp {
        self.record.last_at()
    }

    fn bytes(&self) -> u64 {
        size_of_text(self.record.raw())
    }
}

pub(crate) fn size_of_text(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

pub(crate) fn no_room(capacity: u64) -> StoreError {
    StoreError::Full(format!("the store in memory holds at most {capacity} bytes").into())
}

impl Rows {
    fn add(&mut self, record: ErrorRecord, fingerprint: String) {
        let key = (record.session().clone(), fingerprint.clone());
        let runs = BTreeSet::from([record.run().clone()]);
        let number = self.shelf.add(ErrorRow { record, fingerprint, runs });
        // A copied error keeps its id; new occurrences count for the error that was here.
        self.by_fingerprint.entry(key).or_insert(number);
    }

    /// Removes a row's fingerprint, unless another row of the same error is counted under it.
    fn forget(by_fingerprint: &mut HashMap<(SessionId, String), u64>, number: u64, row: ErrorRow) {
        let key = (row.record.session().clone(), row.fingerprint);
        if by_fingerprint.get(&key) == Some(&number) {
            by_fingerprint.remove(&key);
        }
    }
}

impl MemoryErrorStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(DEFAULT_CAPACITY)
    }

    /// Creates an empty store with this capacity.
    #[must_use]
    pub fn with_capacity(bytes: u64) -> Self {
        Self { kept: OnceLock::new(), capacity: bytes }
    }

    fn kept_errors(&self) -> &KeptErrors {
        self.kept.get_or_init(Box::default)
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.kept_errors().rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make_room(&self, rows: &mut Rows, text: &str) -> Result<(), StoreError> {
        let Rows { shelf, by_fingerprint } = rows;
        let is_held = |session: &SessionId| self.kept_errors().holds.is_held(session);
        let gone = |number, row| Rows::forget(by_fingerprint, number, row);
        if shelf.make_room(self.capacity, size_of_text(text), is_held, gone) {
            Ok(())
        } else {
            Err(no_room(self.capacity))
        }
    }
}

impl Default for MemoryErrorStore {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl ErrorStore for MemoryErrorStore {
    async fn store(&self, error: NewError) -> Result<StoredError, StoreError> {
        let fingerprint = error.fingerprint();
        let (at, session) = (error.origin().at, error.origin().session.clone());
        let mut rows = self.rows();
        let known = rows.by_fingerprint.get(&(session, fingerprint.clone())).copied();
        let again = known.and_then(|number| {
            rows.shelf.change(number, |row| {
                row.record.see_again(at);
                row.runs.insert(error.origin().run.clone());
                StoredError { id: row.record.id().clone(), occurrences: row.record.occurrences() }
            })
        });
        if let Some(stored) = again {
            return Ok(stored);
        }
        let id = loop {
            let id = error_id(at)?;
            if !rows.shelf.knows(id.as_str()) {
                break id;
            }
        };
        self.make_room(&mut rows, error.raw())?;
        rows.add(error.into_record(id.clone()), fingerprint);
        Ok(StoredError { id, occurrences: 1 })
    }

    async fn keep(&self, record: ErrorRecord) -> Result<(), StoreError> {
        let mut rows = self.rows();
        if !rows.shelf.knows(record.id().as_str()) {
            self.make_room(&mut rows, record.raw())?;
            let fingerprint = record.fingerprint();
            rows.add(record, fingerprint);
        }
        Ok(())
    }

    async fn keep_expired(&self, session: &SessionId, id: &ErrorId) -> Result<(), StoreError> {
        let mut rows = self.rows();
        rows.shelf.expire(session, id.as_str());
        Ok(())
    }

    async fn get(
        &self,
        session: &SessionId,
        id: &ErrorId,
    ) -> Result<Lookup<ErrorRecord>, StoreError> {
        let rows = self.rows();
        Ok(rows.shelf.get(Some(session), id.as_str()).map(|row| row.record.clone()))
    }

    async fn find(&self, id: &ErrorId) -> Result<Lookup<ErrorRecord>, StoreError> {
        let rows = self.rows();
        Ok(rows.shelf.get(None, id.as_str()).map(|row| row.record.clone()))
    }

    async fn list(&self, filter: ErrorFilter) -> Result<Vec<ErrorRecord>, StoreError> {
        let rows = self.rows();
        let met: Option<BTreeSet<RunId>> =
            filter.runs.as_ref().map(|runs| runs.iter().cloned().collect());
        let mut records: Vec<&ErrorRecord> = rows
            .shelf
            .newest()
            .filter(|row| met.as_ref().is_none_or(|met| !met.is_disjoint(&row.runs)))
            .map(|row| &row.record)
            .filter(|record| filter.matches(record))
            .collect();
        // The sort is stable: of equal times, the last stored stays first.
        records.sort_by_key(|record| std::cmp::Reverse(record.at()));
        records.truncate(limit(filter.limit));
        Ok(records.into_iter().cloned().collect())
    }

    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        let mut rows = self.rows();
        let Rows { shelf, by_fingerprint } = &mut *rows;
        let is_held = |session: &SessionId| self.kept_errors().holds.is_held(session);
        let gone = |number, row| Rows::forget(by_fingerprint, number, row);
        Ok(shelf.prune(retention, now, is_held, gone))
    }

    async fn stats(&self, limit_to: Option<u32>) -> Result<Vec<ErrorStats>, StoreError> {
        let rows = self.rows();
        let mut groups = BTreeMap::new();
        for record in rows.shelf.newest().map(|row| &row.record) {
            let key = (record.tool(), record.session(), record.reason(), record.code());
            let counts: &mut (u64, u64, u64) = groups.entry(key).or_default();
            counts.0 += 1;
            counts.1 += record.occurrences();
            counts.2 += record.chars_kept() * record.occurrences();
        }
        let stats = groups.into_iter().map(|((tool, session, reason, code), counts)| {
            let code = code.map(ToString::to_string);
            ErrorStats::new(tool.to_string(), reason.clone(), code, session.clone())
                .counting(counts.0, counts.1, counts.2)
        });
        let mut stats: Vec<ErrorStats> = stats.collect();
        stats.sort_by_key(|stats| std::cmp::Reverse(stats.chars_kept));
        stats.truncate(limit(limit_to));
        Ok(stats)
    }

    fn hold(&self, session: &SessionId) -> Hold {
        self.kept_errors().holds.hold(session)
    }
}

fn limit(limit: Option<u32>) -> usize {
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}
