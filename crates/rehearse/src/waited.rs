//! Stores that keep the virtual clock still while they work.

use std::sync::Arc;

use async_trait::async_trait;
use backstop_clock::VirtualClock;
use backstop_error_store::{
    CountBy, ErrorCount, ErrorFilter, ErrorRecord, ErrorStats, ErrorStore, Hold, Lookup, NewError,
    NewResult, Pruned, ResultEntry, ResultFilter, ResultRecord, ResultStore, Retention, StoreError,
    Stored,
};
use backstop_event_log::{
    Batch, Claim, Cursor, EventFilter, EventLog, EventWatch, FeedPage, InboxMessage, InboxRequest,
    InboxWatch, LogError, LogKey, OpenApproval, Record, RunFilter, RunSummary,
};
use layer0::Timestamp;
use layer0::id::{ErrorId, ResultId, RunId, SessionId};

/// A store around which the clock is held, because its work is on threads the clock cannot see.
#[derive(Debug, Clone)]
pub struct Held<S> {
    store: S,
    clock: VirtualClock,
}

impl<S> Held<S> {
    /// Holds `clock` during every call of `store`.
    pub const fn new(store: S, clock: VirtualClock) -> Self {
        Self { store, clock }
    }
}

#[async_trait]
impl EventLog for Held<Arc<dyn EventLog>> {
    fn key(&self) -> Option<&LogKey> {
        self.store.key()
    }

    async fn erase(&self, run: &RunId, seq: u64) -> Result<Vec<RunId>, LogError> {
        let _hold = self.clock.hold();
        self.store.erase(run, seq).await
    }

    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        let _hold = self.clock.hold();
        self.store.claim(run).await
    }

    fn claim_new(&self, run: &RunId) -> Claim {
        self.store.claim_new(run)
    }

    async fn last_root(&self, session: &SessionId) -> Result<Option<RunSummary>, LogError> {
        let _hold = self.clock.hold();
        self.store.last_root(session).await
    }

    async fn open_approvals(&self) -> Result<Vec<OpenApproval>, LogError> {
        let _hold = self.clock.hold();
        self.store.open_approvals().await
    }

    async fn send(&self, request: InboxRequest, by: &str, at: Timestamp) -> Result<bool, LogError> {
        let _hold = self.clock.hold();
        self.store.send(request, by, at).await
    }

    async fn inbox(&self, run: &RunId) -> Result<Vec<InboxMessage>, LogError> {
        let _hold = self.clock.hold();
        self.store.inbox(run).await
    }

    fn watch_inbox(&self, run: &RunId) -> InboxWatch {
        self.store.watch_inbox(run)
    }

    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        let _hold = self.clock.hold();
        self.store.append(batch).await
    }

    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        let _hold = self.clock.hold();
        self.store.summary(run).await
    }

    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        let _hold = self.clock.hold();
        self.store.records(run, from_seq).await
    }

    async fn read_feed(&self, filter: &EventFilter, cursor: &Cursor) -> Result<FeedPage, LogError> {
        let _hold = self.clock.hold();
        self.store.read_feed(filter, cursor).await
    }

    fn watch_events(&self) -> EventWatch {
        self.store.watch_events()
    }

    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunSummary>, LogError> {
        let _hold = self.clock.hold();
        self.store.runs(filter).await
    }
}

#[async_trait]
impl ErrorStore for Held<Arc<dyn ErrorStore>> {
    async fn store(&self, error: NewError) -> Result<Stored, StoreError> {
        let _hold = self.clock.hold();
        self.store.store(error).await
    }

    async fn keep(&self, error: ErrorRecord) -> Result<(), StoreError> {
        let _hold = self.clock.hold();
        self.store.keep(error).await
    }

    async fn keep_expired(&self, session: &SessionId, id: &ErrorId) -> Result<(), StoreError> {
        let _hold = self.clock.hold();
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
        let _hold = self.clock.hold();
        self.store.find(id).await
    }

    async fn list(&self, filter: ErrorFilter) -> Result<Vec<ErrorRecord>, StoreError> {
        let _hold = self.clock.hold();
        self.store.list(filter).await
    }

    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        let _hold = self.clock.hold();
        self.store.prune(retention, now).await
    }

    async fn stats(&self, limit: Option<u32>) -> Result<Vec<ErrorStats>, StoreError> {
        let _hold = self.clock.hold();
        self.store.stats(limit).await
    }

    async fn count(&self, filter: ErrorFilter, by: CountBy) -> Result<Vec<ErrorCount>, StoreError> {
        let _hold = self.clock.hold();
        self.store.count(filter, by).await
    }

    fn hold(&self, session: &SessionId) -> Hold {
        self.store.hold(session)
    }
}

#[async_trait]
impl ResultStore for Held<Arc<dyn ResultStore>> {
    async fn put(&self, result: NewResult) -> Result<ResultId, StoreError> {
        let _hold = self.clock.hold();
        self.store.put(result).await
    }

    async fn keep(&self, result: ResultRecord) -> Result<(), StoreError> {
        let _hold = self.clock.hold();
        self.store.keep(result).await
    }

    async fn keep_expired(&self, session: &SessionId, id: &ResultId) -> Result<(), StoreError> {
        let _hold = self.clock.hold();
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
        let _hold = self.clock.hold();
        self.store.find(id).await
    }

    async fn list(&self, filter: ResultFilter) -> Result<Vec<ResultEntry>, StoreError> {
        let _hold = self.clock.hold();
        self.store.list(filter).await
    }

    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        let _hold = self.clock.hold();
        self.store.prune(retention, now).await
    }

    fn hold(&self, session: &SessionId) -> Hold {
        self.store.hold(session)
    }
}
