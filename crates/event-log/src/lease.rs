use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use layer0::id::RunId;

use crate::LogError;

/// The time for which a process may act for the runs that it has claimed, in a log shared by several processes.
///
/// Locks that the system releases when a process dies need no lease. If a process can be stopped or cut off while
/// others take its runs over, it must know by itself when it may not act any more.
#[async_trait]
pub trait Lease: Send + Sync {
    /// Returns whether an action with an effect may start now.
    fn may_start(&self) -> bool;

    /// Waits until an action may start; never returns once the lease has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn until_may_start(&self);

    /// Waits until the lease has ended: started actions must stop, and nothing may be appended any more.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn wait_for_end(&self);

    /// Waits until actions with an effect must stop: the lease has ended, or another process may soon take over the
    /// runs.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn must_stop(&self) {
        self.wait_for_end().await;
    }

    /// Returns the error of an append to a run once the lease has ended.
    fn loss(&self, run: &RunId) -> LogError {
        LogError::LeaseEnded(run.clone())
    }

    /// Registers an action with an effect until the returned guard is dropped: a process that leaves waits for the
    /// guard. `None` if no process waits.
    fn at_work(&self) -> Option<ActionGuard> {
        None
    }
}

/// Waits until an action with an effect may start, and registers it until the returned guard is dropped. Never returns
/// once the lease has ended.
///
/// The guard is `None` if a process that leaves does not wait for it.
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
pub async fn begin_work(lease: &dyn Lease) -> Option<ActionGuard> {
    loop {
        lease.until_may_start().await;
        let at_work = lease.at_work();
        // An action registered too late does not start.
        if lease.may_start() {
            return at_work;
        }
    }
}

/// Performs work with an effect, and drops it with `None` when it [must stop](Lease::must_stop).
///
/// # Cancel safety
///
/// Dropping the future drops the work.
pub async fn while_it_lasts<T>(lease: &dyn Lease, work: impl Future<Output = T>) -> Option<T> {
    let (mut stop, mut work) = (lease.must_stop(), pin!(work));
    poll_fn(|cx| match stop.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => work.as_mut().poll(cx).map(Some),
    })
    .await
}

/// Guard of an action in progress.
#[must_use = "it is at work until it is dropped"]
pub struct ActionGuard(#[expect(dead_code, reason = "it is held")] Box<dyn Send + Sync>);

impl ActionGuard {
    /// Creates a guard that ends when `held` is dropped.
    pub fn new(held: impl Send + Sync + 'static) -> Self {
        Self(Box::new(held))
    }
}

impl fmt::Debug for ActionGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtWork").finish_non_exhaustive()
    }
}

/// The lease of a claim, if it has one.
pub(crate) type HeldLease = Option<Arc<dyn Lease>>;
