//! The requests that retry and fallback repeat.

use std::pin::Pin;
use std::time::Duration;

use layer0::failure::ErrorText;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// A request as retry and fallback need it; its clones are its attempts.
pub trait RetryRequest<E>: Clone {
    /// Returns whether the request may be repeated even if an attempt acted.
    fn is_idempotent(&self) -> bool;

    /// Limits the attempts at all endpoints together further than the configuration does.
    fn max_attempts(&self) -> Option<u32> {
        None
    }

    /// Returns how long it may take until the next attempt begins; a longer wait is not begun.
    fn time_left(&self) -> Option<Duration> {
        None
    }

    /// Receives a failed attempt that will be followed by another. The wait begins when the returned future is done. If
    /// the future fails, there is no other attempt, and its failure is the request's.
    fn attempted(&self, attempt: FailedAttempt<'_, E>) -> Option<BoxFuture<Result<(), E>>> {
        let _ = attempt;
        None
    }

    /// Completes when no other attempt is wanted: a wait ends with it, and the last failure is the
    /// request's.
    fn given_up(&self) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }

    /// Receives what the endpoints failed with together, and once for each of the others what that one failed
    /// with: `earlier` belongs into the chain of `error`.
    fn keep_earlier(&self, error: &mut E, earlier: &ErrorText) {
        let _ = (error, earlier);
    }
}

/// An attempt that failed and will be followed by another.
#[derive(Debug)]
#[non_exhaustive]
pub struct FailedAttempt<'a, E> {
    /// The number of the attempt, those at other endpoints included: 1, 2, ….
    pub number: u32,
    /// The attempt's failure.
    pub error: &'a E,
    /// The wait that follows; zero if the next endpoint is asked.
    pub delay: Duration,
}
