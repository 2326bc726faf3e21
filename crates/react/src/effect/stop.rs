//! Telling a step to end.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

/// Tells a step that it is to end. Clones are the same one.
///
/// It wakes nothing: a journal polls all its steps after it told one of them to end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(crate) fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Is ready once the step is to end.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub(crate) async fn stopped(&self) {
        poll_fn(|_| if self.is_stopped() { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}
