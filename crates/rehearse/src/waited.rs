//! Stores whose calls block the thread of a rehearsal.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use async_trait::async_trait;
use backstop_error_store::{
    CountBy, ErrorCount, ErrorFilter, ErrorRecord, ErrorStats, ErrorStore, Hold, Lookup, NewError,
    NewResult, Pruned, ResultEntry, ResultFilter, ResultRecord, ResultStore, Retention, StoreError,
    StoredError,
};
use backstop_event_log::{
    Batch, Claim, Cursor, Erasures, EventFeed, EventFilter, EventLog, EventWatch, FeedPage, Inbox,
    InboxMessage, InboxRequest, InboxWatch, Log, LogError, LostRun, LostTails, OpenApproval, Ports,
    Record, RunFilter, RunSummary, Runs,
};
use layer0::Timestamp;
use layer0::event::LostTail;
use layer0::id::{ErrorId, ResultId, RunId, SessionId};
use tokio::runtime::Handle;
use tokio::task::unconstrained;

/// A store whose calls each block the thread until they end, so that runs that write at the same moment take turns in
/// the same order every time. The store has a runtime of its own.
#[derive(Debug, Clone)]
pub(crate) struct Waited<S> {
    store: S,
    runtime: Handle,
}

impl<S> Waited<S> {
    /// Wraps a store that works in `runtime`, which is not the runtime of the callers.
    pub(crate) const fn new(store: S, runtime: Handle) -> Self {
        Self { store, runtime }
    }

    /// Waits for the store, then lets the other tasks have their turn.
    async fn wait<T>(&self, work: impl Future<Output = T> + Send) -> T {
        let result = self.block_on(work);
        give_way().await;
        result
    }

    fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        // Tasks that the store spawns run on its own runtime while this thread waits.
        let _in_store = self.runtime.enter();
        // Tokio's budget of the task does not apply: nothing else could run in the meantime.
        let mut work = pin!(unconstrained(work));
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        loop {
            match work.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(result) => return result,
                Poll::Pending => std::thread::park(),
            }
        }
    }
}

/// Yields to the tasks that can run. The waker is called at once, so the clock counts the task as busy throughout.
async fn give_way() {
    let mut has_given_way = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_given_way, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl EventLog for Waited<Arc<dyn EventLog>> {
    fn ports(&self) -> Ports<'_> {
        Ports::new(self).lost_tails(self).feed(self).runs(self).inbox(self).erasures(self)
    }
}

#[async_trait]
impl Log for Waited<Arc<dyn EventLog>> {
    async fn claim(&self, run: &RunId) -> Result<Claim, LogError> {
        self.wait(self.store.claim(run)).await
    }

    fn claim_new(&self, run: &RunId) -> Claim {
        let _in_store = self.runtime.enter();
        self.store.claim_new(run)
    }

    async fn append(&self, batch: Batch) -> Result<(), LogError> {
        self.wait(self.store.append(batch)).await
    }

    async fn summary(&self, run: &RunId) -> Result<Option<RunSummary>, LogError> {
        self.wait(self.store.summary(run)).await
    }

    async fn records(&self, run: &RunId, from_seq: u64) -> Result<Vec<Record>, LogError> {
        self.wait(self.store.records(run, from_seq)).await
    }
}

#[async_trait]
impl LostTails for Waited<Arc<dyn EventLog>> {
    async fn claim_with_loss(&self, run: &RunId) -> Result<(Claim, Option<LostTail>), LogError> {
        self.wait(self.store.claim_with_loss(run)).await
    }

    async fn lost_tails(&self) -> Result<Vec<LostRun>, LogError> {
        self.wait(self.store.lost_tails()).await
    }
}

#[async_trait]
impl EventFeed for Waited<Arc<dyn EventLog>> {
    async fn read_feed(&self, filter: &EventFilter, cursor: &Cursor) -> Result<FeedPage, LogError> {
        self.wait(self.store.read_feed(filter, cursor)).await
    }

    fn watch_events(&self) -> EventWatch {
        let _in_store = self.runtime.enter();
        self.store.watch_events()
    }
}

#[async_trait]
impl Runs for Waited<Arc<dyn EventLog>> {
    async fn last_root(&self, session: &SessionId) -> Result<Option<RunSummary>, LogError> {
        self.wait(self.store.last_root(session)).await
    }

    async fn runs(&self, filter: RunFilter) -> Result<Vec<RunSummary>, LogError> {
        self.wait(self.store.runs(filter)).await
    }
}

#[async_trait]
impl Inbox for Waited<Arc<dyn EventLog>> {
    async fn open_approvals(&self) -> Result<Vec<OpenApproval>, LogError> {
        self.wait(self.store.open_approvals()).await
    }

    async fn send(&self, request: InboxRequest, by: &str, at: Timestamp) -> Result<bool, LogError> {
        self.wait(self.store.send(request, by, at)).await
    }

    async fn inbox(&self, run: &RunId) -> Result<Vec<InboxMessage>, LogError> {
        self.wait(self.store.inbox(run)).await
    }

    fn watch_inbox(&self, run: &RunId) -> InboxWatch {
        let _in_store = self.runtime.enter();
        self.store.watch_inbox(run)
    }
}

#[async_trait]
impl Erasures for Waited<Arc<dyn EventLog>> {
    async fn erase(&self, run: &RunId, seq: u64) -> Result<Vec<RunId>, LogError> {
        self.wait(self.store.erase(run, seq)).await
    }

    async fn erasures(&self) -> Result<Option<u64>, LogError> {
        self.wait(self.store.erasures()).await
    }
}

#[async_trait]
impl ErrorStore for Waited<Arc<dyn ErrorStore>> {
    async fn store(&self, error: NewError) -> Result<StoredError, StoreError> {
        self.wait(self.store.store(error)).await
    }

    async fn keep(&self, error: ErrorRecord) -> Result<(), StoreError> {
        self.wait(self.store.keep(error)).await
    }

    async fn keep_expired(&self, session: &SessionId, id: &ErrorId) -> Result<(), StoreError> {
        self.wait(self.store.keep_expired(session, id)).await
    }

    async fn get(
        &self,
        session: &SessionId,
        id: &ErrorId,
    ) -> Result<Lookup<ErrorRecord>, StoreError> {
        self.wait(self.store.get(session, id)).await
    }

    async fn find(&self, id: &ErrorId) -> Result<Lookup<ErrorRecord>, StoreError> {
        self.wait(self.store.find(id)).await
    }

    async fn list(&self, filter: ErrorFilter) -> Result<Vec<ErrorRecord>, StoreError> {
        self.wait(self.store.list(filter)).await
    }

    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        self.wait(self.store.prune(retention, now)).await
    }

    async fn stats(&self, limit: Option<u32>) -> Result<Vec<ErrorStats>, StoreError> {
        self.wait(self.store.stats(limit)).await
    }

    async fn count(&self, filter: ErrorFilter, by: CountBy) -> Result<Vec<ErrorCount>, StoreError> {
        self.wait(self.store.count(filter, by)).await
    }

    fn hold(&self, session: &SessionId) -> Hold {
        self.store.hold(session)
    }
}

#[async_trait]
impl ResultStore for Waited<Arc<dyn ResultStore>> {
    async fn put(&self, result: NewResult) -> Result<ResultId, StoreError> {
        self.wait(self.store.put(result)).await
    }

    async fn keep(&self, result: ResultRecord) -> Result<(), StoreError> {
        self.wait(self.store.keep(result)).await
    }

    async fn keep_expired(&self, session: &SessionId, id: &ResultId) -> Result<(), StoreError> {
        self.wait(self.store.keep_expired(session, id)).await
    }

    async fn get(
        &self,
        session: &SessionId,
        id: &ResultId,
    ) -> Result<Lookup<ResultRecord>, StoreError> {
        self.wait(self.store.get(session, id)).await
    }

    async fn find(&self, id: &ResultId) -> Result<Lookup<ResultRecord>, StoreError> {
        self.wait(self.store.find(id)).await
    }

    async fn list(&self, filter: ResultFilter) -> Result<Vec<ResultEntry>, StoreError> {
        self.wait(self.store.list(filter)).await
    }

    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        self.wait(self.store.prune(retention, now)).await
    }

    fn hold(&self, session: &SessionId) -> Hold {
        self.store.hold(session)
    }
}
