//! The callers of an operator without a record and of its child runs.

use std::sync::Arc;

use async_trait::async_trait;
use backstop_clock::Limit;
use layer0::error::OrchError;
use layer0::id::RunId;
use layer0::operator::{Caller, Waiting};
use layer0::usage::{Allowance, Usage};

use super::{Books, UnendedDispatch};
use crate::usage::add_usage;

/// The caller that the operator itself reports to.
pub(crate) struct OwnCaller(pub(crate) Arc<Books>);

#[async_trait]
impl Caller for OwnCaller {
    fn report_usage(&self, usage: Usage) {
        self.0.state().stated = usage;
        self.0.tell_used();
    }

    async fn wait(&self, waiting: Waiting) {
        let above = self.0.above.clone();
        let _pause = LimitPause::new(&self.0.limit);
        match above {
            Some(above) => above.wait(waiting).await,
            None => std::future::pending().await,
        }
    }

    async fn more(&self, given: u32) -> Option<Allowance> {
        self.0.more_for_itself(given).await
    }

    async fn retry(&self, attempt: u32) -> Result<(), OrchError> {
        match &self.0.above {
            Some(above) => above.retry(attempt).await,
            None => Ok(()),
        }
    }

    async fn until_may_act(&self) {
        self.0.until_may_act().await;
    }

    async fn must_stop(&self) {
        self.0.must_stop().await;
    }
}

/// Guard that pauses a time limit until it is dropped.
pub(crate) struct LimitPause<'a>(&'a Limit);

impl<'a> LimitPause<'a> {
    pub(crate) fn new(limit: &'a Limit) -> Self {
        limit.pause();
        Self(limit)
    }
}

impl Drop for LimitPause<'_> {
    fn drop(&mut self) {
        self.0.go_on();
    }
}

/// The caller that a child run reports to.
pub(crate) struct ChildCaller {
    pub(crate) books: Arc<Books>,
    pub(crate) run: RunId,
}

impl ChildCaller {
    fn note_want(&self, wants_more: bool) {
        if let Some(open) = self.books.state().open.get_mut(&self.run) {
            open.wants_more = wants_more;
        }
        self.books.changed.send_replace(());
    }

    fn note(&self, waiting: Option<Waiting>) {
        if let Some(open) = self.books.state().open.get_mut(&self.run) {
            open.waiting = waiting;
        }
        self.books.changed.send_replace(());
    }
}

#[async_trait]
impl Caller for ChildCaller {
    fn report_usage(&self, usage: Usage) {
        if let Some(open) = self.books.state().open.get_mut(&self.run) {
            open.used = add_usage(open.earlier, &usage);
        }
        self.books.tell_used();
    }

    async fn wait(&self, waiting: Waiting) {
        let mut changes = self.books.changed.subscribe();
        self.note(Some(waiting));
        let _goes_on = WaitGuard(self);
        // Once the operator is suspended, the wait lasts until the child run has ended.
        while !self.books.state().leaves {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    async fn more(&self, _: u32) -> Option<Allowance> {
        let mut changes = self.books.changed.subscribe();
        let _wants = Wants::new(self);
        loop {
            let asks = {
                let mut state = self.books.state();
                let left = state.remaining_allowance()?;
                let rest = state.open.get(&self.run).and_then(UnendedDispatch::rest);
                if rest.is_some_and(|rest| rest.used_up().is_some()) {
                    return None;
                }
                if left.used_up().is_none() {
                    return state.grant(&self.run, left);
                }
                (!state.others_work(&self.run)).then_some(state.asked)
            };
            let Some(asked) = asks else {
                drop(changes.changed().await);
                continue;
            };
            if !self.books.refill(asked).await {
                return None;
            }
        }
    }

    async fn retry(&self, _: u32) -> Result<(), OrchError> {
        Ok(())
    }

    async fn until_may_act(&self) {
        self.books.until_may_act().await;
    }

    async fn must_stop(&self) {
        self.books.must_stop().await;
    }
}

/// Guard that marks a child run as in need of more budget until it is dropped.
struct Wants<'a>(&'a ChildCaller);

impl<'a> Wants<'a> {
    fn new(below: &'a ChildCaller) -> Self {
        below.note_want(true);
        Self(below)
    }
}

impl Drop for Wants<'_> {
    fn drop(&mut self) {
        self.0.note_want(false);
    }
}

struct WaitGuard<'a>(&'a ChildCaller);

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        // A child run that was asked to suspend ends now.
        if !self.0.books.state().leaves {
            self.0.note(None);
        }
    }
}
