//! Parked dispatches: they return their permit, and continue when they are due.

use std::future::{pending, poll_fn};
use std::sync::Arc;

use backstop_clock::Clock;
use backstop_event_log::EventLog;
use futures_util::future::{Either, select};
use layer0::Timestamp;
use layer0::error::OrchError;
use layer0::id::RunId;
use layer0::operator::{Answer, Context, Signal};

/// A parked root, with the time until which it is parked.
pub(crate) struct Parked {
    run: RunId,
    until: Timestamp,
}

impl Parked {
    /// Returns the parked run of a dispatch without a caller.
    pub(crate) fn from_result(
        ended: &Result<Answer, OrchError>,
        context: &Context,
    ) -> Option<Self> {
        let answer = ended.as_ref().ok().filter(|_| context.depth == 0)?;
        Some(Self { run: answer.run.clone()?, until: answer.parked_until? })
    }

    /// Waits until the run is due, receives a message, is cancelled or is given up; giving it up cancels it. Afterwards
    /// the context is set to resume the run.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the run as it is; its record has the time until which it is parked.
    pub(crate) async fn wait(
        self,
        context: &mut Context,
        clock: &dyn Clock,
        log: Option<&Arc<dyn EventLog>>,
        given_up: impl Future<Output = ()> + Send,
    ) {
        let is_given_up = {
            let cancelled = poll_fn(|task| context.signals.poll_has(Signal::CANCEL, task));
            let told = select(Box::pin(cancelled), Box::pin(sent_to(&self.run, log)));
            // time of day: a run is parked until a time of day.
            let wakes = select(clock.sleep(self.until.since(clock.now())), told);
            match select(wakes, Box::pin(given_up)).await {
                Either::Left(_) => false,
                Either::Right(_) => true,
            }
        };
        if is_given_up && !context.signals.is_detached() {
            context.signals.push(Signal::cancel());
        }
        (context.run, context.goes_on) = (Some(self.run), true);
    }
}

/// Completes when the inbox of a run is not empty.
async fn sent_to(run: &RunId, log: Option<&Arc<dyn EventLog>>) {
    let Some(log) = log else { return pending().await };
    let mut watch = log.watch_inbox(run);
    loop {
        watch.wait_for_change().await;
        // An inbox that cannot be read is read again at its next change.
        if log.inbox(run).await.is_ok_and(|inbox| !inbox.is_empty()) {
            return;
        }
    }
}
