//! The stop flag of a step.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

/// A flag that orders a step to end. Clones share it.
///
/// Setting it wakes nothing: a journal polls all its steps after it sets the flag of one of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    pub(crate) fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Completes once the step is to end.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub(crate) async fn wait(&self) {
        poll_fn(|_| if self.is_stopped() { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}
