use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use async_trait::async_trait;
use layer0::Timestamp;
use layer0::id::{ResultId, SessionId};

use crate::memory::{DEFAULT_CAPACITY, no_room, size_of_text};
use crate::results::{NewResult, ResultEntry, ResultRecord, ResultStore, result_id};
use crate::shelf::{Shelf, ShelfItem};
use crate::{Hold, Holds, Lookup, Pruned, ResultFilter, Retention, StoreError};

/// A result store that lives as long as the process. It holds at most 16 MiB by default; beyond that, it drops the
/// oldest results whose sessions have no open run.
#[derive(Debug)]
pub struct MemoryResultStore {
    /// Created for the first run: many agents are never run.
    kept: OnceLock<Box<KeptResults>>,
    capacity: u64,
}

#[derive(Debug, Default)]
struct KeptResults {
    rows: Mutex<Shelf<ResultRecord>>,
    holds: Holds,
}

impl MemoryResultStore {
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

    fn kept_results(&self) -> &KeptResults {
        self.kept.get_or_init(Box::default)
    }

    fn rows(&self) -> MutexGuard<'_, Shelf<ResultRecord>> {
        self.kept_results().rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, rows: &mut Shelf<ResultRecord>, record: ResultRecord) -> Result<(), StoreError> {
        let is_held = |session: &SessionId| self.kept_results().holds.is_held(session);
        if !rows.make_room(self.capacity, record.bytes(), is_held, |_, row| drop(row)) {
            return Err(no_room(self.capacity));
        }
        rows.add(record);
        Ok(())
    }
}

impl Default for MemoryResultStore {
    fn default() -> Self {
        Self::new()
    }
}

impl ShelfItem for ResultRecord {
    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn session(&self) -> &SessionId {
        &self.origin.session
    }

    fn last_at(&self) -> Timestamp {
        self.origin.at
    }

    fn bytes(&self) -> u64 {
        size_of_text(&self.body)
    }
}

#[async_trait]
impl ResultStore for MemoryResultStore {
    async fn put(&self, result: NewResult) -> Result<ResultId, StoreError> {
        let mut rows = self.rows();
        let id = loop {
            let id = result_id(result.origin().at)?;
            if !rows.knows(id.as_str()) {
                break id;
            }
        };
        self.add(&mut rows, result.into_record(id.clone()))?;
        Ok(id)
    }

    async fn keep(&self, result: ResultRecord) -> Result<(), StoreError> {
        let mut rows = self.rows();
        if rows.knows(result.id.as_str()) { Ok(()) } else { self.add(&mut rows, result) }
    }

    async fn keep_expired(&self, session: &SessionId, id: &ResultId) -> Result<(), StoreError> {
        let mut rows = self.rows();
        rows.expire(session, id.as_str());
        Ok(())
    }

    async fn get(
        &self,
        session: &SessionId,
        id: &ResultId,
    ) -> Result<Lookup<ResultRecord>, StoreError> {
        let rows = self.rows();
        Ok(rows.get(Some(session), id.as_str()).map(Clone::clone))
    }

    async fn find(&self, id: &ResultId) -> Result<Lookup<ResultRecord>, StoreError> {
        let rows = self.rows();
        Ok(rows.get(None, id.as_str()).map(Clone::clone))
    }

    async fn list(&self, filter: ResultFilter) -> Result<Vec<ResultEntry>, StoreError> {
        let rows = self.rows();
        let listed = rows.newest().filter(|row| filter.matches(&row.id, &row.origin));
        let mut entries: Vec<ResultEntry> = listed
            .map(|row| ResultEntry::new(row.id.clone(), row.origin.clone(), row.bytes()))
            .collect();
        // The sort is stable: of equal times, the last stored stays first.
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.origin.at));
        let limit = filter.limit.and_then(|limit| usize::try_from(limit).ok());
        entries.truncate(limit.unwrap_or(usize::MAX));
        Ok(entries)
    }

    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        let mut rows = self.rows();
        Ok(rows.prune(
            retention,
            now,
            |session| self.kept_results().holds.is_held(session),
            |_, row| drop(row),
        ))
    }

    fn hold(&self, session: &SessionId) -> Hold {
        self.kept_results().holds.hold(session)
    }
}
