//! What a run below tells the run above it, on its way there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use backstop_clock::Limit;
use backstop_event_log::Lease;
use layer0::Code;
use layer0::error::OrchError;
use layer0::failure::Failure;
use layer0::id::RunId;
use layer0::operator::{Answer, Caller, Waiting};
use layer0::stop::{Outcome, Stop};
use layer0::usage::{Allowance, Usage};
use tokio::sync::{Notify, watch};

use crate::effect::Asks;
use crate::journal::{Ask, Told};

/// How far a run below is.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    pub(super) usage: Usage,
    pub(super) end: Option<(Outcome, Option<Code>)>,
}

/// The end of a dispatch that the operator holds.
pub(super) struct Link {
    asks: Arc<Asks>,
    run: RunId,
    progress: watch::Sender<Progress>,
    waits: Arc<Waits>,
    /// The lease of the run above.
    lease: Option<Arc<dyn Lease>>,
    /// Was the run above told that this one waits, since it was last tried?
    has_waited: AtomicBool,
}

/// What the runs of one call wait for: while they all do, its time does not pass.
pub(super) struct Waits {
    pub(super) limit: Limit,
    /// How many have not ended, and how many of them wait.
    open: Mutex<(usize, usize)>,
    /// Is told when one has ended.
    pub(super) changed: Notify,
}

impl Waits {
    pub(super) fn new(limit: Limit) -> Self {
        Self { limit, open: Mutex::default(), changed: Notify::new() }
    }

    fn change(&self, change: impl FnOnce(&mut (usize, usize))) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut open);
        match *open {
            (open, waiting) if open > 0 && open == waiting => self.limit.pause(),
            _ => self.limit.go_on(),
        }
    }
}

impl Link {
    pub(super) fn new(
        asks: Arc<Asks>,
        run: RunId,
        waits: Arc<Waits>,
        lease: Option<Arc<dyn Lease>>,
    ) -> (Arc<Self>, watch::Receiver<Progress>) {
        let (progress, followed) = watch::channel(Progress::default());
        waits.change(|(open, _)| *open += 1);
        let has_waited = AtomicBool::default();
        (Arc::new(Self { asks, run, progress, waits, lease, has_waited }), followed)
    }

    /// Was the run above told that this one waits?
    pub(super) fn has_waited(&self) -> bool {
        self.has_waited.load(Ordering::Acquire)
    }

    /// Says how the operator ended. One that answers that it waits, and did not tell its caller for what, has
    /// failed: nothing would ever resume it.
    pub(super) fn ended(&self, result: &Result<Answer, OrchError>) {
        self.progress.send_modify(|progress| {
            progress.end = Some(match result {
                Ok(answer) if answer.stop == Stop::WaitingApproval && !self.has_waited() => {
                    progress.usage = answer.usage;
                    (Outcome::Failed, answer.stop.reason())
                }
                Ok(answer) => {
                    progress.usage = answer.usage;
                    (answer.stop.outcome(), answer.stop.reason())
                }
                Err(error) => (Outcome::Failed, Some(Code::new(error.code()))),
            });
        });
        self.waits.change(|(open, _)| *open = open.saturating_sub(1));
        self.waits.changed.notify_waiters();
    }
}

#[async_trait]
impl Caller for Link {
    fn used(&self, usage: Usage) {
        self.progress.send_modify(|progress| progress.usage = usage);
    }

    async fn wait(&self, waiting: Waiting) {
        self.has_waited.store(true, Ordering::Release);
        self.waits.change(|(_, waiting)| *waiting += 1);
        let _waits = NoLonger(&self.waits);
        let goes_on = GoesOn(self);
        let told = self.asks.ask(Ask::Wait { run: self.run.clone(), waiting }).await;
        std::mem::forget(goes_on);
        if told.is_none() {
            // The run above is over; it has told this one to end.
            std::future::pending::<()>().await;
        }
    }

    async fn more(&self, given: u32) -> Option<Allowance> {
        match self.asks.ask(Ask::More { run: self.run.clone(), given }).await {
            Some(Told::More(more)) => more,
            _ => None,
        }
    }

    async fn retry(&self, attempt: u32) -> Result<(), OrchError> {
        self.has_waited.store(false, Ordering::Release);
        match self.asks.ask(Ask::Retry { run: self.run.clone(), attempt }).await {
            Some(_) => Ok(()),
            None => Err(OrchError::DispatchFailed("the run that dispatches is over".to_owned())),
        }
    }

    async fn until_may_act(&self) {
        if let Some(lease) = &self.lease {
            lease.until_may_start().await;
        }
    }

    async fn must_stop(&self) {
        match &self.lease {
            Some(lease) => lease.must_stop().await,
            None => std::future::pending().await,
        }
    }
}

/// Tells the run above that the wait is over, when it is dropped.
struct GoesOn<'a>(&'a Link);

impl Drop for GoesOn<'_> {
    fn drop(&mut self) {
        self.0.asks.tell(Ask::GoesOn { run: self.0.run.clone() });
    }
}

/// Says that a run waits no longer, when it is dropped.
struct NoLonger<'a>(&'a Waits);

impl Drop for NoLonger<'_> {
    fn drop(&mut self) {
        self.0.change(|(_, waiting)| *waiting = waiting.saturating_sub(1));
    }
}
