//! Reports of a child run to its caller.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use backstop_clock::Limit;
use backstop_event_log::Lease;
use backstop_redact::Redactor;
use layer0::error::OrchError;
use layer0::event::OperatorReturned;
use layer0::failure::{Effect, Failure, RetryFacts};
use layer0::id::RunId;
use layer0::operator::{Answer, Caller, Waiting};
use layer0::stop::{Outcome, Stop};
use layer0::usage::{Allowance, Usage};
use layer0::{Code, code, text};
use tokio::sync::{Notify, watch};

use crate::effect::Asks;
use crate::journal::{StepReply, StepRequest};

/// The progress of a child run.
#[derive(Debug, Clone, Default)]
pub(super) struct ChildProgress {
    pub(super) usage: Usage,
    pub(super) end: Option<ChildEnd>,
}

/// The end of a child run.
#[derive(Debug, Clone)]
pub(super) struct ChildEnd {
    pub(super) outcome: Outcome,
    pub(super) reason: Option<Code>,
    pub(super) failure: Option<ChildFailure>,
}

/// The failure of a child run, without secrets.
#[derive(Debug, Clone)]
pub(super) struct ChildFailure {
    retry: RetryFacts,
    effect: Effect,
    messages: Vec<Arc<str>>,
}

impl ChildEnd {
    const fn new(outcome: Outcome, reason: Option<Code>) -> Self {
        Self { outcome, reason, failure: None }
    }

    /// Returns the end of a run that did not end by itself, or never began.
    pub(super) fn stopped() -> Self {
        Self::new(Outcome::Cancelled, Some(Code::new(code::RUN_CANCELLED)))
    }

    fn failed(error: &OrchError, redactor: &Redactor) -> Self {
        let facts = error.facts();
        let texts = error.messages();
        let texts = texts.iter().map(|text| text::cut_message(&redactor.redact(text)).into());
        let (retry, effect, messages) = (facts.retry_facts(), facts.effect, texts.collect());
        let failure = Some(ChildFailure { retry, effect, messages });
        Self { failure, ..Self::new(Outcome::Failed, Some(Code::new(error.code()))) }
    }

    /// Returns the event of the end.
    pub(super) fn into_event(
        self,
        operator: Arc<str>,
        run: RunId,
        usage: Usage,
    ) -> OperatorReturned {
        let mut returned = OperatorReturned::new(operator, run, self.outcome, self.reason, usage);
        if let Some(ChildFailure { retry, effect, messages }) = self.failure {
            (returned.retry, returned.effect) = (Some(retry), Some(effect));
            returned.messages = messages;
        }
        returned
    }
}

/// The operator's end of a dispatch.
pub(super) struct DispatchLink {
    asks: Arc<Asks>,
    run: RunId,
    progress: watch::Sender<ChildProgress>,
    waits: Arc<CallWaits>,
    /// The lease of the caller.
    lease: Option<Arc<dyn Lease>>,
    redactor: Redactor,
    /// Whether a wait was reported to the caller since the last attempt.
    has_waited: AtomicBool,
}

/// The waits of one call: its time does not pass while all its child runs wait. While it asks a person, this includes a
/// call without child runs.
pub(super) struct CallWaits {
    pub(super) limit: Limit,
    open: Mutex<CallWork>,
    /// Notified when a child run has ended.
    pub(super) changed: Notify,
}

/// The open work of a call.
#[derive(Default)]
struct CallWork {
    /// Number of child runs that have not ended.
    runs: usize,
    /// Number of these that wait.
    waiting: usize,
    /// Whether a person is asked.
    asks_person: bool,
}

impl CallWaits {
    pub(super) fn new(limit: Limit) -> Self {
        Self { limit, open: Mutex::default(), changed: Notify::new() }
    }

    fn change(&self, change: impl FnOnce(&mut CallWork)) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut open);
        match *open {
            CallWork { runs, waiting, asks_person }
                if runs == waiting && (runs > 0 || asks_person) =>
            {
                self.limit.pause();
            }
            _ => self.limit.go_on(),
        }
    }

    /// Stops the call's time until the guard is dropped, unless a child run is running.
    pub(super) fn ask_person(self: &Arc<Self>) -> PersonWait {
        self.change(|open| open.asks_person = true);
        PersonWait(Arc::clone(self))
    }
}

impl DispatchLink {
    pub(super) fn new(
        asks: Arc<Asks>,
        run: RunId,
        waits: Arc<CallWaits>,
        (lease, redactor): (Option<Arc<dyn Lease>>, Redactor),
    ) -> (Arc<Self>, watch::Receiver<ChildProgress>) {
        let (progress, followed) = watch::channel(ChildProgress::default());
        waits.change(|open| open.runs += 1);
        let has_waited = AtomicBool::default();
        (Arc::new(Self { asks, run, progress, waits, lease, redactor, has_waited }), followed)
    }

    /// Returns whether a wait was reported to the caller.
    pub(super) fn has_waited(&self) -> bool {
        self.has_waited.load(Ordering::Acquire)
    }

    /// Sets the operator's end. An operator that answers that it waits, without having reported the wait to its caller,
    /// has failed: nothing would ever resume it.
    pub(super) fn record_end(&self, result: &Result<Answer, OrchError>) {
        self.progress.send_modify(|progress| {
            progress.end = Some(match result {
                Ok(answer) if answer.stop == Stop::WaitingApproval && !self.has_waited() => {
                    progress.usage = answer.usage;
                    ChildEnd::new(Outcome::Failed, answer.stop.reason())
                }
                Ok(answer) => {
                    progress.usage = answer.usage;
                    ChildEnd::new(answer.stop.outcome(), answer.stop.reason())
                }
                Err(error) => ChildEnd::failed(error, &self.redactor),
            });
        });
        self.waits.change(|open| open.runs = open.runs.saturating_sub(1));
        self.waits.changed.notify_waiters();
    }
}

#[async_trait]
impl Caller for DispatchLink {
    fn report_usage(&self, usage: Usage) {
        self.progress.send_modify(|progress| progress.usage = usage);
    }

    async fn wait(&self, waiting: Waiting) {
        self.has_waited.store(true, Ordering::Release);
        self.waits.change(|open| open.waiting += 1);
        let _waits = NoLonger(&self.waits);
        let goes_on = ReportedWait(self);
        let told = self.asks.ask(StepRequest::Wait { run: self.run.clone(), waiting }).await;
        std::mem::forget(goes_on);
        if told.is_none() {
            // The caller is over, and has stopped this run.
            std::future::pending::<()>().await;
        }
    }

    async fn more(&self, given: u32) -> Option<Allowance> {
        match self.asks.ask(StepRequest::More { run: self.run.clone(), given }).await {
            Some(StepReply::More(more)) => more,
            _ => None,
        }
    }

    async fn retry(&self, attempt: u32) -> Result<(), OrchError> {
        self.has_waited.store(false, Ordering::Release);
        match self.asks.ask(StepRequest::Retry { run: self.run.clone(), attempt }).await {
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

/// Guard of a wait: when dropped, reports the end of the wait to the caller.
struct ReportedWait<'a>(&'a DispatchLink);

impl Drop for ReportedWait<'_> {
    fn drop(&mut self) {
        self.0.asks.tell(StepRequest::GoesOn { run: self.0.run.clone() });
    }
}

/// Guard of a wait: when dropped, counts the run as running again.
struct NoLonger<'a>(&'a CallWaits);

impl Drop for NoLonger<'_> {
    fn drop(&mut self) {
        self.0.change(|open| open.waiting = open.waiting.saturating_sub(1));
    }
}

/// The wait of a call for a person.
pub(crate) struct PersonWait(Arc<CallWaits>);

impl Drop for PersonWait {
    fn drop(&mut self) {
        self.0.change(|open| open.asks_person = false);
    }
}
