//! Stores whose work takes no time of a virtual clock, but where a test makes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use backstop::clock::{ClockHold, VirtualClock};
use backstop::error_store::{
    ErrorFilter, ErrorRecord, ErrorStats, ErrorStore, Lookup, MemoryErrorStore, MemoryResultStore,
    NewError, NewResult, Pruned, ResultEntry, ResultFilter, ResultRecord, ResultStore, Retention,
    Store, StoreError, StoredError,
};
use backstop::layer0::error::StateError;
use backstop::layer0::id::{ErrorId, ResultId, SessionId};
use backstop::layer0::state::{Expected, Scope, StateEntry, StateQuery, StateWrite, Versioned};
use backstop::layer0::{StateStore, Timestamp};
use backstop::{Database, Durability, EventLog, MemoryLog, MemoryStateStore};

use super::stopper::Stopper;

/// The stores of a case.
pub(super) struct Stores {
    pub(super) log: Arc<dyn EventLog>,
    pub(super) errors: Arc<dyn ErrorStore>,
    pub(super) results: Arc<dyn ResultStore>,
    pub(super) state: Arc<dyn StateStore>,
    /// The folder of the database, if any.
    _folder: Option<tempfile::TempDir>,
}

impl Stores {
    pub(super) fn in_memory() -> Self {
        Self {
            log: Arc::new(MemoryLog::new()),
            errors: Arc::new(MemoryErrorStore::default()),
            results: Arc::new(MemoryResultStore::new()),
            state: Arc::new(MemoryStateStore::new()),
            _folder: None,
        }
    }

    pub(super) async fn in_a_file() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("runs.db");
        let database = Database::open(file, Durability::Normal).await.unwrap();
        Self {
            log: Store::log(&database),
            errors: Store::errors(&database),
            results: Store::results(&database),
            state: Store::state(&database).unwrap(),
            _folder: Some(folder),
        }
    }
}

/// A store of results or errors. With a stopper, it stops the run when it is written to, and then takes its time.
pub(super) struct BusyTexts<S: ?Sized> {
    pub(super) store: Arc<S>,
    pub(super) clock: VirtualClock,
    pub(super) stopper: Option<Stopper>,
}

impl<S: ?Sized> BusyTexts<S> {
    async fn begin(&self) -> ClockHold {
        if let Some(stopper) = &self.stopper {
            stopper.stop_and_store().await;
        }
        self.clock.hold()
    }
}

#[async_trait]
impl ResultStore for BusyTexts<dyn ResultStore> {
    async fn put(&self, result: NewResult) -> Result<ResultId, StoreError> {
        let _hold = self.begin().await;
        self.store.put(result).await
    }
    async fn keep(&self, result: ResultRecord) -> Result<(), StoreError> {
        self.store.keep(result).await
    }
    async fn keep_expired(&self, session: &SessionId, id: &ResultId) -> Result<(), StoreError> {
        self.store.keep_expired(session, id).await
    }
    async fn get(
        &self,
        session: &SessionId,
        id: &ResultId,
    ) -> Result<Lookup<ResultRecord>, StoreError> {
        let _hold = self.clock.hold();
        self.store.get(session, id).await
    }
    async fn find(&self, id: &ResultId) -> Result<Lookup<ResultRecord>, StoreError> {
        self.store.find(id).await
    }
    async fn list(&self, filter: ResultFilter) -> Result<Vec<ResultEntry>, StoreError> {
        self.store.list(filter).await
    }
    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        self.store.prune(retention, now).await
    }
}

#[async_trait]
impl ErrorStore for BusyTexts<dyn ErrorStore> {
    async fn store(&self, error: NewError) -> Result<StoredError, StoreError> {
        let _hold = self.begin().await;
        self.store.store(error).await
    }
    async fn keep(&self, error: ErrorRecord) -> Result<(), StoreError> {
        self.store.keep(error).await
    }
    async fn keep_expired(&self, session: &SessionId, id: &ErrorId) -> Result<(), StoreError> {
        self.store.keep_expired(session, id).await
    }
    async fn get(
        &self,
        session: &SessionId,
        id: &ErrorId,
    ) -> Result<Lookup<ErrorRecord>, StoreError> {
        let _hold = self.clock.hold();
        self.store.get(session, id).await
    }
    async fn find(&self, id: &ErrorId) -> Result<Lookup<ErrorRecord>, StoreError> {
        self.store.find(id).await
    }
    async fn list(&self, filter: ErrorFilter) -> Result<Vec<ErrorRecord>, StoreError> {
        self.store.list(filter).await
    }
    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        self.store.prune(retention, now).await
    }
    async fn stats(&self, limit: Option<u32>) -> Result<Vec<ErrorStats>, StoreError> {
        self.store.stats(limit).await
    }
}

/// A state store that stops the run when it is written to after the payment, and then takes its time.
pub(super) struct BusyState {
    pub(super) state: Arc<dyn StateStore>,
    pub(super) stopper: Stopper,
    pub(super) was_stopped: AtomicBool,
}

#[async_trait]
impl StateStore for BusyState {
    async fn read(&self, scope: &Scope, key: &str) -> Result<Option<Versioned>, StateError> {
        let _hold = self.stopper.clock.hold();
        self.state.read(scope, key).await
    }
    async fn write(&self, write: StateWrite) -> Result<u64, StateError> {
        if self.stopper.paid() > 0 && !self.was_stopped.swap(true, Ordering::SeqCst) {
            self.stopper.stop_and_store().await;
        }
        let _hold = self.stopper.clock.hold();
        self.state.write(write).await
    }
    async fn delete(
        &self,
        scope: &Scope,
        key: &str,
        expected: Expected,
    ) -> Result<bool, StateError> {
        let _hold = self.stopper.clock.hold();
        self.state.delete(scope, key, expected).await
    }
    async fn list(&self, query: StateQuery) -> Result<Vec<StateEntry>, StateError> {
        self.state.list(query).await
    }
    async fn search(&self, query: StateQuery, text: &str) -> Result<Vec<StateEntry>, StateError> {
        self.state.search(query, text).await
    }
    async fn scopes(&self, after: Option<&Scope>, limit: u32) -> Result<Vec<Scope>, StateError> {
        self.state.scopes(after, limit).await
    }
    async fn clear(&self, scope: &Scope) -> Result<u64, StateError> {
        self.state.clear(scope).await
    }
}
