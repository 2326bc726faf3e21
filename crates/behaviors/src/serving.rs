//! Handle of served behaviours.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backstop_clock::Clock;
use backstop_event_log::{Cursor, EventFilter, EventLog, LogError};
use futures_util::future::{Either, select};
use layer0::id::RunId;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::behavior::Behavior;
use crate::own::RunTreeEvents;
use crate::subscription::{SubscriptionProgress, SubscriptionStatus};

/// Handle of served behaviours. Dropping it stops them; a delivery in progress is repeated later.
pub struct Serving {
    log: Arc<dyn EventLog>,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
    subscriptions: Vec<Served>,
}

/// A subscription served in a task.
pub(crate) struct Served {
    pub(crate) name: Arc<str>,
    pub(crate) behavior: Arc<dyn Behavior>,
    pub(crate) task: JoinHandle<()>,
    pub(crate) standing: watch::Receiver<SubscriptionStatus>,
}

impl Serving {
    /// Returns the handle of subscriptions whose tasks end when `stop` is cancelled.
    pub(crate) const fn new(
        log: Arc<dyn EventLog>,
        clock: Arc<dyn Clock>,
        stop: CancellationToken,
        subscriptions: Vec<Served>,
    ) -> Self {
        Self { log, clock, stop, subscriptions }
    }

    /// Waits until an attempt was made to claim each subscription: events that are recorded later come after the start
    /// of a new subscription. Returns the names of subscriptions that are not served here, because another host has
    /// them or the log fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn wait_for_claims(&self) -> Vec<Arc<str>> {
        let mut waiting = Vec::new();
        for Served { name, standing, .. } in &self.subscriptions {
            let mut standing = standing.clone();
            let known = standing.wait_for(|it| it.progress != SubscriptionProgress::Starting).await;
            if known.is_ok_and(|it| it.progress == SubscriptionProgress::Waiting) {
                waiting.push(Arc::clone(name));
            }
        }
        waiting
    }

    /// Waits, for at most `at_most`, until all events now in the log and the failures of their deliveries are
    /// delivered. Returns whether they are. Subscriptions of other hosts are not awaited.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn settle(&self, at_most: Duration) -> bool {
        let over = self.clock.sleep(at_most);
        // Failures of the first round of deliveries are delivered too.
        let settled = Box::pin(async {
            for _ in 0..2 {
                self.behind_the_end().await;
            }
        });
        matches!(select(settled, over).await, Either::Left(_))
    }

    async fn behind_the_end(&self) {
        let now = self.log.read_feed(&EventFilter::new(), &Cursor::now()).await;
        let Ok(Some(end)) = now.map(|page| page.cursor.number()) else { return };
        for Served { standing, .. } in &self.subscriptions {
            let mut standing = standing.clone();
            drop(standing.wait_for(|it| it.progress.is_behind(end)).await);
        }
    }

    /// Waits, for at most `at_most`, until the events now recorded for these runs and their descendants are delivered,
    /// together with events that follow from these deliveries, such as `behavior.failed`. Returns whether they are.
    /// Deliveries of other runs and subscriptions of other hosts are not awaited.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use backstop_behaviors::{BehaviorHost, behavior};
    /// use backstop_event_log::MemoryLog;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let told = behavior("tell", "run.failed".parse()?, |_, _| async { Ok(()) });
    /// let serving = BehaviorHost::builder(Arc::new(MemoryLog::new())).behavior(told).build()?.serve();
    /// assert!(serving.settle_runs(&["run_1".into()], Duration::from_secs(5)).await);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn settle_runs(&self, runs: &[RunId], at_most: Duration) -> bool {
        let over = self.clock.sleep(at_most);
        let settled = Box::pin(self.wait_for_deliveries(runs));
        match select(settled, over).await {
            Either::Left((Ok(()), _)) => true,
            Either::Left((Err(error), _)) => {
                tracing::warn!(%error, "what runs lead to cannot be read");
                false
            }
            Either::Right(_) => false,
        }
    }

    async fn wait_for_deliveries(&self, runs: &[RunId]) -> Result<(), LogError> {
        let mut own = RunTreeEvents::collect(&self.log, &self.clock, runs).await?;
        loop {
            for Served { behavior, standing, .. } in &self.subscriptions {
                let until = own.until(&**behavior);
                let mut standing = standing.clone();
                drop(standing.wait_for(|it| it.has_ended(until, |event| own.has(event))).await);
            }
            let failures = self.subscriptions.iter().flat_map(|served| {
                served.standing.borrow().failures().cloned().collect::<Vec<_>>()
            });
            if !own.follow(failures.collect()).await? {
                return Ok(());
            }
        }
    }

    /// Stops the deliveries. A delivery in progress is dropped and repeated later.
    pub async fn stop(mut self) {
        self.stop.cancel();
        for Served { task, .. } in std::mem::take(&mut self.subscriptions) {
            if let Err(error) = task.await {
                tracing::error!(%error, "the task of a subscription was lost");
            }
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving")
            .field("subscriptions", &self.subscriptions.len())
            .finish_non_exhaustive()
    }
}
