//! A shelf whose steps are interrupted.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use backstop_error_store::StoreError;
use backstop_event_log::{RunState, Subscription};
use backstop_retention::{OldRun, Removal, Removed, RunRow, RunShelf};
use futures_util::future::BoxFuture;
use layer0::Timestamp;
use layer0::id::{RunId, SessionId};

/// The act of another actor.
pub(super) type Hook<'a> = Box<dyn Fn() -> BoxFuture<'a, ()> + Send + Sync + 'a>;

/// A shelf that lets an actor act before one of its steps.
pub(super) struct Interrupted<'a, S> {
    shelf: &'a S,
    hook: Hook<'a>,
    step: usize,
    steps: AtomicUsize,
}

impl<'a, S> Interrupted<'a, S> {
    pub(super) fn new(shelf: &'a S, hook: Hook<'a>, step: usize) -> Self {
        Self { shelf, hook, step, steps: AtomicUsize::new(0) }
    }
}

impl<S> Interrupted<'_, S> {
    async fn step(&self) {
        if self.steps.fetch_add(1, Ordering::SeqCst) == self.step {
            (self.hook)().await;
        }
    }
}

#[async_trait]
impl<S: RunShelf> RunShelf for Interrupted<'_, S> {
    async fn sweep(&self) -> Result<(), StoreError> {
        self.step().await;
        self.shelf.sweep().await
    }

    async fn old_runs(
        &self,
        until: Timestamp,
        states: &[RunState],
        after: Option<&OldRun>,
    ) -> Result<Vec<OldRun>, StoreError> {
        self.step().await;
        self.shelf.old_runs(until, states, after).await
    }

    async fn connected_runs(&self, runs: &[RunId]) -> Result<Vec<RunRow>, StoreError> {
        self.step().await;
        self.shelf.connected_runs(runs).await
    }

    async fn session_runs(&self, sessions: &[SessionId]) -> Result<Vec<RunRow>, StoreError> {
        self.step().await;
        self.shelf.session_runs(sessions).await
    }

    async fn segments(&self) -> Result<Vec<RunRow>, StoreError> {
        self.step().await;
        self.shelf.segments().await
    }

    async fn subscriptions(&self) -> Result<Vec<Subscription>, StoreError> {
        self.step().await;
        self.shelf.subscriptions().await
    }

    async fn mark_forgetting(&self, session: &SessionId) -> Result<i64, StoreError> {
        self.step().await;
        self.shelf.mark_forgetting(session).await
    }

    async fn unmark_forgetting(&self, marks: &[i64]) -> Result<(), StoreError> {
        self.step().await;
        self.shelf.unmark_forgetting(marks).await
    }

    async fn taken_run(&self, sessions: &[SessionId]) -> Result<Option<RunId>, StoreError> {
        self.step().await;
        self.shelf.taken_run(sessions).await
    }

    async fn remove(
        &self,
        tree: &[&RunRow],
        removal: &Removal,
        removed: &mut Removed,
    ) -> Result<bool, StoreError> {
        self.step().await;
        self.shelf.remove(tree, removal, removed).await
    }

    async fn queued_runs(&self, session: &SessionId) -> Result<Vec<RunId>, StoreError> {
        self.step().await;
        self.shelf.queued_runs(session).await
    }

    async fn session_family(&self, session: &SessionId) -> Result<Vec<SessionId>, StoreError> {
        self.step().await;
        self.shelf.session_family(session).await
    }

    async fn take_session(
        &self,
        session: &SessionId,
        removal: &Removal,
        removed: &mut Removed,
    ) -> Result<(), StoreError> {
        self.step().await;
        self.shelf.take_session(session, removal, removed).await
    }
}
