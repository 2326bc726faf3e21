//! The one source of time.
//!
//! Everything that waits or records times (driver, retry, tool timeouts) takes a [`Clock`];
//! production uses [`SystemClock`], rehearsals use [`VirtualClock`], on which waits cost nothing.
//! Nothing else in the workspace reads the time of day or sleeps.
//!
//! tokio's own paused time is not used for this: with a real database it expires every timeout, the pool's included,
//! because it cannot see that a worker thread is busy.

mod limit;
mod run_clock;
mod system;
mod virtual_clock;

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use layer0::Timestamp;

pub use limit::Limit;
pub use run_clock::RunClock;
pub use system::SystemClock;
pub use virtual_clock::{ClockHold, VirtualClock};

/// A future that can be spawned.
pub type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

/// A source of time, for reading it and for waiting.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns the time of day. It may be set, also backwards, so it is for timestamps and not for
    /// durations.
    fn now(&self) -> Timestamp;

    /// Returns the time since a moment that is fixed for the life of the process. It never steps
    /// back; durations are differences of two readings.
    fn monotonic(&self) -> Duration;

    /// Completes after `wait`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future forgets the wait.
    fn sleep(&self, wait: Duration) -> BoxFuture;

    /// Registers a task with the clock. Every task that may sleep on the clock, or that others wait
    /// for, is passed through here before it is spawned or blocked on.
    fn track(&self, task: BoxFuture) -> BoxFuture {
        task
    }

    /// Returns whether [`Clock::track`] has an effect. If it has none, a task need not be boxed for it.
    fn tracks(&self) -> bool {
        true
    }
}
