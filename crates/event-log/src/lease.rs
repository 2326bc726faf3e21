use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use layer0::id::RunId;

use crate::LogError;

/// For how long a process may act for the runs that it has claimed, where a log is shared by several.
///
/// Locks that a system frees when a process dies need no lease. Where a process can be stopped or cut off and others
/// go on without it, it has to know itself when it may not act any more.
#[async_trait]
pub trait Lease: Send + Sync {
    /// May something be started now that acts on the world?
    fn may_start(&self) -> bool;

    /// Waits until something may be started; for ever, once the lease has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn until_may_start(&self);

    /// Waits until the lease has ended: what was started must not go on, and nothing may be appended any more.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn ended(&self);

    /// Waits until what acts on the world has to stop: the lease has ended, or another process may soon take its
    /// runs over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn must_stop(&self) {
        self.ended().await;
    }

    /// Returns why nothing may be appended to a run any more, once the lease has ended.
    fn loss(&self, run: &RunId) -> LogError {
        LogError::LeaseEnded(run.clone())
    }

    /// Notes that something is at work that acts on the world, until what is returned is dropped: a process that
    /// leaves waits for it. `None` where none waits.
    fn at_work(&self) -> Option<AtWork> {
        None
    }
}

/// Waits until something may be started that acts on the world, for ever once the lease has ended. It is at work until
/// what is returned is dropped, where a process that leaves waits for it.
///
/// # Cancel safety
///
/// Dropping the future changes nothing.
pub async fn begin_work(lease: &dyn Lease) -> Option<AtWork> {
    loop {
        lease.until_may_start().await;
        let at_work = lease.at_work();
        // What was counted too late does not count.
        if lease.may_start() {
            return at_work;
        }
    }
}

/// Does work that acts on the world, and drops it when that [has to stop](Lease::must_stop), which is `None`.
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

/// Something that is at work, until this is dropped.
#[must_use = "it is at work until it is dropped"]
pub struct AtWork(#[expect(dead_code, reason = "it is held")] Box<dyn Send + Sync>);

impl AtWork {
    /// Lets something be at work until `held` is dropped.
    pub fn new(held: impl Send + Sync + 'static) -> Self {
        Self(Box::new(held))
    }
}

impl fmt::Debug for AtWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtWork").finish_non_exhaustive()
    }
}

/// The lease of a claim, if it has one.
pub(crate) type HeldLease = Option<Arc<dyn Lease>>;
