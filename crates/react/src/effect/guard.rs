//! Time limits and panic guards for stores: a store that hangs or panics counts as one that fails.

use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use backstop_clock::Clock;
use backstop_error_store::{
    CountBy, ErrorCount, ErrorFilter, ErrorRecord, ErrorStats, ErrorStore, Hold, Lookup, NewError,
    NewResult, Pruned, ResultEntry, ResultFilter, ResultRecord, ResultStore, Retention, StoreError,
    StoredError,
};
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use layer0::error::StateError;
use layer0::failure::{Chain, Seconds};
use layer0::id::{ErrorId, ResultId, SessionId};
use layer0::state::{Added, Expected, Scope, StateAdd, StateWrite, Versioned};
use layer0::{StateStore, Timestamp, text};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tracing::Instrument;
use tracing::instrument::WithSubscriber;

type Answer<T, E = StoreError> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// A store that answers every call within a limit, and never panics.
pub(crate) struct GuardedStore<S: ?Sized> {
    store: Arc<S>,
    limit: Duration,
    clock: Arc<dyn Clock>,
}

impl<S: ?Sized + Send + Sync + 'static> GuardedStore<S> {
    pub(crate) fn new(store: Arc<S>, limit: Duration, clock: &Arc<dyn Clock>) -> Self {
        Self { store, limit, clock: Arc::clone(clock) }
    }

    /// Asks the store in a separate task, so that a store that blocks its thread delays neither the run nor its own
    /// limit.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future aborts the task.
    async fn ask<T: Send + 'static, E: Unanswered>(
        &self,
        call: impl FnOnce(Arc<S>) -> Answer<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let (answer, answered) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let store = Arc::clone(&self.store);
        let work = async move {
            let asked = AssertUnwindSafe(async { printable(call(store).await) }).catch_unwind();
            let result = asked.await.unwrap_or_else(|panic| {
                let why = format!("it panicked: {}", text::panic_message(panic));
                Err(E::because(why))
            });
            // A late result is discarded.
            let _ = answer.send(result);
        };
        let task = async move {
            select(pin!(work), stopped).await;
        }
        .instrument(tracing::Span::current())
        .with_current_subscriber();
        let task = tokio::spawn(self.clock.track(Box::pin(task))).abort_handle();
        let _stop = StopStoreOnDrop { task, _stop: stop };
        match select(answered, self.clock.sleep(self.limit)).await {
            Either::Left((Ok(result), _)) => result,
            Either::Left((Err(_), _)) => {
                Err(E::because("the task of the store was lost".to_owned()))
            }
            Either::Right(((), _)) => {
                Err(E::because(format!("no answer within {}", Seconds(self.limit))))
            }
        }
    }

    fn hold(&self, hold: impl FnOnce(&S) -> Hold) -> Hold {
        let held = AssertUnwindSafe(|| hold(&self.store));
        std::panic::catch_unwind(held).unwrap_or_else(|panic| {
            let why = text::panic_message(panic);
            tracing::warn!("a store panicked: {why}");
            Hold::none()
        })
    }
}

/// Prints an error once: an error that cannot be printed counts as a panic.
fn printable<T, E: std::error::Error + 'static>(result: Result<T, E>) -> Result<T, E> {
    result.inspect_err(|error| drop(Chain(error).to_string()))
}

/// An error of a store that may give no answer.
trait Unanswered: std::error::Error + Send + 'static {
    fn because(why: String) -> Self;
}

impl Unanswered for StoreError {
    fn because(why: String) -> Self {
        Self::Failed(why.into())
    }
}

impl Unanswered for StateError {
    fn because(why: String) -> Self {
        Self::Other(why.into())
    }
}

/// Guard that stops the task when its answer is no longer awaited. Dropping the sender wakes the task, so that the
/// clock knows that it ends.
struct StopStoreOnDrop {
    task: AbortHandle,
    _stop: oneshot::Sender<()>,
}

impl Drop for StopStoreOnDrop {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl GuardedStore<dyn StateStore> {
    pub(crate) async fn read(
        &self,
        scope: &Scope,
        key: &str,
    ) -> Result<Option<Versioned>, StateError> {
        let (scope, key) = (scope.clone(), key.to_owned());
        self.ask(|store| Box::pin(async move { store.read(&scope, &key).await })).await
    }

    pub(crate) async fn write(&self, write: StateWrite) -> Result<u64, StateError> {
        self.ask(|store| Box::pin(async move { store.write(write).await })).await
    }

    pub(crate) async fn add(&self, add: StateAdd) -> Result<Added, StateError> {
        self.ask(|store| Box::pin(async move { store.add(add).await })).await
    }

    pub(crate) async fn delete(
        &self,
        scope: &Scope,
        key: &str,
        expected: Expected,
    ) -> Result<bool, StateError> {
        let (scope, key) = (scope.clone(), key.to_owned());
        self.ask(move |store| Box::pin(async move { store.delete(&scope, &key, expected).await }))
            .await
    }
}

#[async_trait]
impl ErrorStore for GuardedStore<dyn ErrorStore> {
    async fn store(&self, error: NewError) -> Result<StoredError, StoreError> {
        self.ask(|store| Box::pin(async move { store.store(error).await })).await
    }

    async fn keep(&self, error: ErrorRecord) -> Result<(), StoreError> {
        self.ask(|store| Box::pin(async move { store.keep(error).await })).await
    }

    async fn keep_expired(&self, session: &SessionId, id: &ErrorId) -> Result<(), StoreError> {
        let (session, id) = (session.clone(), id.clone());
        self.ask(|store| Box::pin(async move { store.keep_expired(&session, &id).await })).await
    }

    async fn get(
        &self,
        session: &SessionId,
        id: &ErrorId,
    ) -> Result<Lookup<ErrorRecord>, StoreError> {
        let (session, id) = (session.clone(), id.clone());
        self.ask(|store| Box::pin(async move { store.get(&session, &id).await })).await
    }

    async fn find(&self, id: &ErrorId) -> Result<Lookup<ErrorRecord>, StoreError> {
        let id = id.clone();
        self.ask(|store| Box::pin(async move { store.find(&id).await })).await
    }

    async fn list(&self, filter: ErrorFilter) -> Result<Vec<ErrorRecord>, StoreError> {
        self.ask(|store| Box::pin(async move { store.list(filter).await })).await
    }

    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        self.ask(move |store| Box::pin(async move { store.prune(retention, now).await })).await
    }

    async fn stats(&self, limit: Option<u32>) -> Result<Vec<ErrorStats>, StoreError> {
        self.ask(move |store| Box::pin(async move { store.stats(limit).await })).await
    }

    async fn count(&self, filter: ErrorFilter, by: CountBy) -> Result<Vec<ErrorCount>, StoreError> {
        self.ask(move |store| Box::pin(async move { store.count(filter, by).await })).await
    }

    fn hold(&self, session: &SessionId) -> Hold {
        GuardedStore::hold(self, |store| store.hold(session))
    }
}

#[async_trait]
impl ResultStore for GuardedStore<dyn ResultStore> {
    async fn put(&self, result: NewResult) -> Result<ResultId, StoreError> {
        self.ask(|store| Box::pin(async move { store.put(result).await })).await
    }

    async fn keep(&self, result: ResultRecord) -> Result<(), StoreError> {
        self.ask(|store| Box::pin(async move { store.keep(result).await })).await
    }

    async fn keep_expired(&self, session: &SessionId, id: &ResultId) -> Result<(), StoreError> {
        let (session, id) = (session.clone(), id.clone());
        self.ask(|store| Box::pin(async move { store.keep_expired(&session, &id).await })).await
    }

    async fn get(
        &self,
        session: &SessionId,
        id: &ResultId,
    ) -> Result<Lookup<ResultRecord>, StoreError> {
        let (session, id) = (session.clone(), id.clone());
        self.ask(|store| Box::pin(async move { store.get(&session, &id).await })).await
    }

    async fn find(&self, id: &ResultId) -> Result<Lookup<ResultRecord>, StoreError> {
        let id = id.clone();
        self.ask(|store| Box::pin(async move { store.find(&id).await })).await
    }

    async fn list(&self, filter: ResultFilter) -> Result<Vec<ResultEntry>, StoreError> {
        self.ask(|store| Box::pin(async move { store.list(filter).await })).await
    }

    async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        self.ask(move |store| Box::pin(async move { store.prune(retention, now).await })).await
    }

    fn hold(&self, session: &SessionId) -> Hold {
        GuardedStore::hold(self, |store| store.hold(session))
    }
}
