//! One subscription: taken by one host at a time, and served from where it stands.

mod acquire;
mod backlog;
mod deaths;
mod held;
mod prepare;
mod progress;
mod reading;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backstop_event_log::{FeedRecord, LogError, follow};
use layer0::code;
use layer0::event::EventKind;
use tokio_util::sync::CancellationToken;

use crate::behavior::Behavior;
use crate::context::Means;
pub(crate) use acquire::{Acquired, acquire};
use deaths::Deaths;
use held::{Happened, Held};
pub(crate) use prepare::{Verdict, prepare};
pub(crate) use progress::{EventId, Failed, Progress, Progressing, Standing};

/// The wait before a subscription that another host has, or a log that fails, is tried again.
const AGAIN: Duration = Duration::from_millis(500);

/// A behaviour with what its host lends it.
pub(crate) struct Serve {
    pub(crate) name: Arc<str>,
    pub(crate) pattern: Arc<str>,
    pub(crate) behavior: Arc<dyn Behavior>,
    /// What its pack grants it.
    pub(crate) grants: Arc<[String]>,
    pub(crate) means: Arc<Means>,
    pub(crate) progress: Progressing,
    pub(crate) stop: CancellationToken,
    /// Whether the host before died, until that is counted.
    is_takeover: AtomicBool,
}

impl Serve {
    /// Puts together what serves a behaviour until `stop` is cancelled.
    pub(crate) fn new(
        (behavior, grants): (Arc<dyn Behavior>, Arc<[String]>),
        means: Arc<Means>,
        progress: Progressing,
        stop: CancellationToken,
    ) -> Self {
        let name = behavior.name().into();
        let pattern = behavior.patterns().to_string().into();
        let is_takeover = AtomicBool::new(false);
        Self { name, pattern, behavior, grants, means, progress, stop, is_takeover }
    }

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
            self.progress.set(Progress::Waiting);
            let again = self.means.clock.sleep(AGAIN);
            drop(futures_util::future::select(again, pin!(self.stop.cancelled())).await);
        }
        self.progress.set(Progress::Stopped);
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
        let mut held = Held::new(self, (segment, &stands), deaths);
        self.progress.begin(stands.cursor);
        loop {
            held.move_if_due(feed.cursor()).await?;
            match held.next(&mut feed).await {
                Happened::Stopped => return held.stop(feed.cursor()).await,
                Happened::Lost(error) => return Err(error),
                Happened::Noted => held.commit().await?,
                Happened::Done(done) => held.take(done)?,
                Happened::Resumed => held.resume_reading(),
                Happened::Read(Ok(None)) => held.reach_end(),
                Happened::Read(Err(error)) => held.suspend_reading(error),
                Happened::Read(Ok(Some(record))) => {
                    let ended = stands.positions.get(&record.run);
                    let is_ended = ended.is_some_and(|seq| record.record.seq <= *seq);
                    held.read(record, is_ended);
                }
            }
        }
    }
}

/// Returns whether an event is to be delivered, as far as it says so itself. Failures that end a circle are not.
pub(crate) fn is_wanted(
    behavior: &dyn Behavior,
    FeedRecord { run, record, .. }: &FeedRecord,
) -> bool {
    let is_own =
        backstop_event_log::segment_of(run).is_some_and(|(name, _)| name == behavior.name());
    let ends_a_circle = record.event_type == "behavior.failed"
        && record.payload.text().is_some_and(|text| text.contains(code::BEHAVIOR_RECURSION))
        && matches!(
            record.decode(run).map(|event| event.kind),
            Ok(EventKind::BehaviorFailed(failed)) if failed.reason == *code::BEHAVIOR_RECURSION
        );
    !is_own && !ends_a_circle && behavior.patterns().matches(run, record)
}
