//! The requests that retry and fallback repeat.

use std::pin::Pin;
use std::time::Duration;

use layer0::failure::ErrorText;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// A request for retry and fallback; its clones are its attempts.
pub trait RetryRequest<E>: Clone {
    /// Returns whether the request may be repeated even if an attempt acted.
    fn is_idempotent(&self) -> bool;

    /// Returns a further limit of the attempts at all endpoints together, if any.
    fn max_attempts(&self) -> Option<u32> {
        None
    }

    /// Returns the time until the next attempt has to begin, if limited; a longer delay is not started.
    fn time_left(&self) -> Option<Duration> {
        None
    }

    /// Receives a failed attempt that will be followed by another. The delay starts when the
    /// returned future is done. If the future fails, there is no other attempt, and its failure is
    /// returned for the request.
    fn record_failed_attempt(
        &self,
        attempt: FailedAttempt<'_, E>,
    ) -> Option<BoxFuture<Result<(), E>>> {
        let _ = attempt;
        None
    }

    /// Completes when no other attempt is wanted: this ends a delay, and the last failure is returned.
    fn given_up(&self) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }

    /// Receives the joined failure of several endpoints, once for each of the other failures:
    /// `earlier` belongs in the chain of `error`.
    fn keep_earlier(&self, error: &mut E, earlier: &ErrorText) {
        let _ = (error, earlier);
    }
}

/// An attempt that failed and will be followed by another.
#[derive(Debug)]
#[non_exhaustive]
pub struct FailedAttempt<'a, E> {
    /// The number of the attempt, including those at other endpoints: 1, 2, ….
    pub number: u32,
    /// The attempt's failure.
    pub error: &'a E,
    /// The delay that follows; zero if the next endpoint is called.
    pub delay: Duration,
}
