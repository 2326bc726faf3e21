//! The task of a streamed run, owned by its stream.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::task::Poll;

use backstop_clock::Clock;
use layer0::id::{RunId, SessionId};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tracing::Instrument;
use tracing::instrument::WithSubscriber;

use crate::effect::guarded::drop_guarded;
use crate::error::RunFailure;
use crate::feed::{RunResult, StreamFeed};
use crate::run::start::StartingRun;

type RunFuture = Pin<Box<dyn Future<Output = RunResult> + Send>>;
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A run in its own task. Dropping it drops the run, at once unless the run is being polled: the run no longer holds
/// its claim.
pub(super) struct RunTask {
    /// Empty once the run has ended.
    run: Arc<Mutex<Option<RunFuture>>>,
    /// The task, until there is a runtime to spawn it on.
    unstarted: Option<Task>,
    handle: Option<AbortHandle>,
}

impl RunTask {
    pub(super) fn new(
        start: Box<StartingRun>,
        feed: Arc<StreamFeed>,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let end = EndOnDrop { feed, run: start.run.clone(), session: start.session.clone() };
        let run: RunFuture = Box::pin(async move { start.run().await });
        let run = Arc::new(Mutex::new(Some(run)));
        let polled = Arc::clone(&run);
        let task = async move {
            // Ends the stream if the run panics or its runtime ends.
            let end = end;
            let result = std::future::poll_fn(|context| {
                let mut slot = polled.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(run) = slot.as_mut() else { return Poll::Ready(None) };
                let polled = run.as_mut().poll(context);
                if polled.is_ready() {
                    *slot = None;
                }
                polled.map(Some)
            });
            if let Some(result) = result.await {
                end.feed.end(result);
            }
        };
        let task = task.instrument(tracing::Span::current()).with_current_subscriber();
        let unstarted = Some(clock.track(Box::pin(task)));
        let mut task = Self { run, unstarted, handle: None };
        if Handle::try_current().is_ok() {
            task.ensure_started();
        }
        task
    }

    /// Spawns the task, if it is not spawned yet.
    pub(super) fn ensure_started(&mut self) {
        if let Some(task) = self.unstarted.take() {
            self.handle = Some(tokio::spawn(task).abort_handle());
        }
    }
}

impl Drop for RunTask {
    fn drop(&mut self) {
        let run = match self.run.try_lock() {
            Ok(mut slot) => slot.take(),
            Err(TryLockError::Poisoned(slot)) => slot.into_inner().take(),
            // The run is being polled, and is dropped with its task.
            Err(TryLockError::WouldBlock) => None,
        };
        drop_guarded(run);
        if let Some(handle) = &self.handle {
            handle.abort();
        }
    }
}

struct EndOnDrop {
    feed: Arc<StreamFeed>,
    run: RunId,
    session: SessionId,
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        // No effect if the run has ended: its end is known already.
        self.feed.end(Err(RunFailure::from_lost_task(self.run.clone(), self.session.clone())));
    }
}
