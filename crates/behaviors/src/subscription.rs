//! One subscription, served by one host at a time from its recorded position.

mod acquire;
mod backlog;
mod deaths;
mod held;
mod prepare;
mod progress;
mod reading;
mod serve;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use backstop_event_log::{LogError, follow};

pub(crate) use acquire::{Acquired, acquire};
use deaths::Deaths;
use held::{ClaimedSubscription, SubscriptionEvent};
pub(crate) use prepare::{DeliveryPlan, prepare};
pub(crate) use progress::{
    DeliveryFailure, EventId, StatusSender, SubscriptionProgress, SubscriptionStatus,
};
use serve::AGAIN;
pub(crate) use serve::{Serve, is_wanted};

impl Serve {
    /// Serves the subscription until the host stops, whenever no other host has it.
    pub(crate) async fn run(self) {
        while !self.stop.is_cancelled() {
            match self.serve_once().await {
                Ok(()) => break,
                Err(LogError::Claimed(_) | LogError::Conflict { .. } | LogError::LeaseEnded(_)) => {
                    tracing::debug!(subscription = %self.name, "another host has it");
                }
                Err(LogError::Closed) => break,
                Err(error) => {
                    let code = layer0::Failure::code(&error);
                    tracing::warn!(subscription = %self.name, code, "deliveries wait: {error}");
                }
            }
            self.progress.set(SubscriptionProgress::Waiting);
            let again = self.means.clock.sleep(AGAIN);
            drop(futures_util::future::select(again, pin!(self.stop.cancelled())).await);
        }
        self.progress.set(SubscriptionProgress::Stopped);
    }

    async fn serve_once(&self) -> Result<(), LogError> {
        let Acquired { segment, stands, is_takeover } =
            acquire(&*self.behavior, &self.means, (&self.name, &self.pattern)).await?;
        self.is_takeover.fetch_or(is_takeover, Ordering::Relaxed);
        let log = Arc::clone(&self.means.log);
        let has_died = self.is_takeover.load(Ordering::Relaxed);
        let deaths = Deaths::read(&*log, (&self.name, stands.segment), has_died).await?;
        self.is_takeover.store(false, Ordering::Relaxed);
        let filter = self.behavior.patterns().event_filter();
        let mut feed = follow(log, filter, stands.cursor).await?;
        let mut held = ClaimedSubscription::new(self, (segment, &stands), deaths);
        self.progress.begin(stands.cursor);
        loop {
            held.move_if_due(feed.cursor()).await?;
            match held.next(&mut feed).await {
                SubscriptionEvent::Stopped => return held.stop(feed.cursor()).await,
                SubscriptionEvent::Lost(error) => return Err(error),
                SubscriptionEvent::Noted => held.commit().await?,
                SubscriptionEvent::Done(done) => held.take(done)?,
                SubscriptionEvent::Resumed => held.resume_reading(),
                SubscriptionEvent::Read(Ok(None)) => held.reach_end(),
                SubscriptionEvent::Read(Err(error)) => held.suspend_reading(error),
                SubscriptionEvent::Read(Ok(Some(record))) => {
                    let ended = stands.positions.get(&record.run);
                    let is_ended = ended.is_some_and(|seq| record.record.seq <= *seq);
                    held.read(record, is_ended);
                }
            }
        }
    }
}
