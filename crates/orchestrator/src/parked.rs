//! Dispatches that are put aside for a time: their permit is given back, and they are gone on with when it
//! is time.

use std::future::{pending, poll_fn};
use std::sync::Arc;

use backstop_clock::Clock;
use backstop_event_log::EventLog;
use futures_util::future::{Either, select};
use layer0::Timestamp;
use layer0::error::OrchError;
use layer0::id::RunId;
use layer0::operator::{Answer, Context, Signal};

/// A root that is put aside until then.
pub(crate) struct Parked {
    run: RunId,
    until: Timestamp,
}

impl Parked {
    /// Returns what is put aside, if a dispatch that nothing dispatched is.
    pub(crate) fn of(ended: &Result<Answer, OrchError>, context: &Context) -> Option<Self> {
        let answer = ended.as_ref().ok().filter(|_| context.depth == 0)?;
        Some(Self { run: answer.run.clone()?, until: answer.parked_until? })
    }

    /// Waits until it is time, something is sent to the run, or it is cancelled or given up:
    /// what was put aside ends then. Afterwards the context says how to go on.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the run as it is; its record says until when it is parked.
    pub(crate) async fn wait(
        self,
        context: &mut Context,
        clock: &Arc<dyn Clock>,
        log: Option<&Arc<dyn EventLog>>,
        given_up: impl Future<Output = ()> + Send,
    ) {
        let began = clock.now();
        let is_given_up = {
            let cancelled = poll_fn(|task| context.signals.poll_has(Signal::CANCEL, task));
            let told = select(Box::pin(cancelled), Box::pin(sent_to(&self.run, log)));
            let wakes = select(clock.sleep(self.until.since(began)), told);
            match select(wakes, Box::pin(given_up)).await {
                Either::Left(_) => false,
                Either::Right(_) => true,
            }
        };
        if is_given_up && !context.signals.is_detached() {
            context.signals.push(Signal::cancel());
        }
        // Time without a process moves the deadline by as much.
        let waited = clock.now().since(began);
        context.deadline = context.deadline.map(|deadline| deadline.after(waited));
        (context.run, context.goes_on) = (Some(self.run), true);
    }
}

/// Completes when the inbox of a run has something.
async fn sent_to(run: &RunId, log: Option<&Arc<dyn EventLog>>) {
    let Some(log) = log else { return pending().await };
    let mut watch = log.watch_inbox(run);
    loop {
        watch.changed().await;
        // One that cannot be read is looked at when it changes again.
        if log.inbox(run).await.is_ok_and(|inbox| !inbox.is_empty()) {
            return;
        }
    }
}
